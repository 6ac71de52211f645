package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestSpanMarksKnowWhatWasVisibleASpanAgo(t *testing.T) {
	var m spanMarks
	begin := time.Now()
	for tick := range 100 { // two ticks a second
		now := begin.Add(time.Duration(tick) * housekeepingEvery / 2)
		oldest := m.oldest(now, kv.SeqNum(1000+tick))
		if now.Sub(begin) < nameSpan {
			assert.Zero(t, oldest, "tick %d", tick)
			continue
		}
		exact := 1000 + tick - int(2*nameSpan/housekeepingEvery)
		assert.LessOrEqual(t, oldest, kv.SeqNum(exact), "tick %d: at least a span is kept", tick)
		assert.GreaterOrEqual(t, oldest, kv.SeqNum(exact-2), "tick %d: and not much more", tick)
		assert.LessOrEqual(t, len(m), int(nameSpan/housekeepingEvery)+2)
	}
}
