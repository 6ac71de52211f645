package daemon

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
)

func TestStallsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(zap.NewNop())
		stall := j.listener().Stall
		stall(event.Stall{Reason: "memtables", Begin: true, Rate: 1})
		time.Sleep(2 * time.Second)
		stall(event.Stall{Reason: "memtables", Begin: true, Rate: 2}) // slower still
		time.Sleep(time.Second)
		assert.Equal(t, 3*time.Second, j.incidents().Stalled["memtables"], "it goes on")
		stall(event.Stall{Reason: "deltas"}) // the reason changed on the way
		time.Sleep(time.Hour)
		assert.Equal(t, map[string]time.Duration{"memtables": 3 * time.Second, "deltas": 0}, j.incidents().Stalled)
	})
}

func TestEveryEventIsALineAtItsLevel(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	j := newJournal(zap.New(core))
	l := j.listener()
	l.Flush(event.Flush{})
	l.Compaction(event.Compaction{})
	l.SegmentCreated(event.Segment{})
	l.SegmentRemoved(event.Segment{})
	l.Recovered(event.Recovered{Took: time.Minute})
	l.TailDropped(event.TailDrop{Bytes: 5})
	l.TailDropped(event.TailDrop{Bytes: 6})
	l.FileSetAside(event.SetAside{From: "a", To: "b"})
	l.Corruption(kv.Corruptf("f", 1, "x")) // counted; Damaged is the line
	l.Damaged(event.Damage{File: "p-0000/000001.sst", Kind: "table", Offset: 1, Reason: "x", First: []byte("secret"), Last: []byte("secret")})
	l.BackgroundError(errors.New("x"))
	l.Failed(errors.New("x"))
	l.Failed(errors.New("x")) // the engine says it too

	levels := map[zapcore.Level]int{}
	for _, line := range lines.All() {
		levels[line.Level]++
		assert.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), "secret", "logs have no keys")
	}
	assert.Equal(t, map[zapcore.Level]int{zapcore.DebugLevel: 4, zapcore.InfoLevel: 1, zapcore.WarnLevel: 3, zapcore.ErrorLevel: 3}, levels)
	got := j.incidents()
	assert.EqualValues(t, 1, got.Corruptions)
	assert.EqualValues(t, 1, got.BackgroundErrors)
	assert.EqualValues(t, 1, got.FilesSetAside)
	assert.EqualValues(t, 11, got.TailDropped)
	assert.Equal(t, time.Minute, got.Recovery)
}
