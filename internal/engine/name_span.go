package engine

import (
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// nameSpan is for how long the log keeps named writes that are in tables already,
// so that a caller who lost its connection in a crash can still be told what
// became of its writes. Longer than a restart and retries that wait for it take.
const nameSpan = 30 * time.Second

// nameSpanSegments bounds what the log keeps for that: the active segment, the one
// prepared, and one more.
const nameSpanSegments = 3

// spanMarks says which number was visible when. Used by the keeper alone.
type spanMarks []spanMark

type spanMark struct {
	when    time.Time
	visible kv.SeqNum
}

// oldest notes what is visible now and returns what was visible a nameSpan ago, or
// 0 if that is not known.
func (m *spanMarks) oldest(now time.Time, visible kv.SeqNum) kv.SeqNum {
	if n := len(*m); n == 0 || now.Sub((*m)[n-1].when) >= housekeepingEvery {
		*m = append(*m, spanMark{now, visible})
	}
	for len(*m) > 1 && now.Sub((*m)[1].when) >= nameSpan {
		*m = (*m)[1:]
	}
	if first := (*m)[0]; now.Sub(first.when) >= nameSpan {
		return first.visible
	}
	return 0
}
