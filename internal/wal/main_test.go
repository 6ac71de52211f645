package wal

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testDir   = "data/wal"
	testStore = 0x5eed_5eed_5eed_5eed
)

// newDisk returns a file system on which the parent of the log's directory is durable, as
// the engine leaves it.
func newDisk(t testing.TB) *vfs.Mem {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("data"))
	require.NoError(t, m.SyncDir("/"))
	return m
}

// rec is a record that a test expects.
type rec struct {
	base    kv.SeqNum
	units   uint32
	payload string
}

func testOptions(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: testDir, StoreID: testStore, SegmentBytes: 4 << 10, Fresh: true}
}

func mustOpen(t testing.TB, o Options) (*Log, []rec, Recovery) {
	t.Helper()
	l, recs, r, err := openAll(o)
	require.NoError(t, err)
	return l, recs, r
}

func openAll(o Options) (*Log, []rec, Recovery, error) {
	var recs []rec
	l, r, err := Open(o, func(r Record) error {
		recs = append(recs, rec{r.Base, r.Units, string(r.Payload)})
		return nil
	})
	return l, recs, r, err
}

// appendTo is Append, for a caller that waits for room.
func appendTo(l *Log, payload []byte, units uint32, level kv.Durability, w Waker, c *trace.Batch) (kv.SeqNum, Pos, error) {
	for {
		base, pos, err := l.Append(payload, units, level, w, c)
		if !errors.Is(err, ErrNoRoomYet) {
			return base, pos, err
		}
		if err := l.AwaitRoom(background); err != nil {
			return 0, 0, err
		}
	}
}

// put appends a record and waits until it is as durable as asked.
func put(t testing.TB, l *Log, payload string, units uint32, level kv.Durability) rec {
	t.Helper()
	w := make(signal, 1)
	base, pos, err := appendTo(l, []byte(payload), units, level, w, nil)
	require.NoError(t, err)
	l.Flush()
	for !reached(l, pos, level) {
		require.NoError(t, l.Err())
		<-w
	}
	return rec{base, units, payload}
}

func reached(l *Log, pos Pos, level kv.Durability) bool {
	switch level {
	case kv.DurabilityMemory:
		return true
	case kv.DurabilityBuffered:
		return l.Written() >= pos
	default:
		return l.Synced() >= pos
	}
}

func payload(i int) string { return fmt.Sprintf("record %d", i) }

var background = context.Background()
