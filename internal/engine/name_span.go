package engine

import (
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// nameSpan is for how long the log keeps writes that are in tables already because of
// their request ids, so that after a crash a client can still learn what became of its
// writes. It is longer than a restart and the retries that wait for it take.
const nameSpan = 30 * time.Second

// nameSpanSegments bounds how much log is kept for that: the active segment, the one
// prepared, and one more.
const nameSpanSegments = 3

// spanMarks records which number was visible at which time. Used only by the maintenance
// loop.
type spanMarks []spanMark

type spanMark struct {
	when    time.Time
	visible kv.SeqNum
}

// oldest records the number visible now and returns the one that was visible a nameSpan
// ago, or 0 if that is not known.
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
