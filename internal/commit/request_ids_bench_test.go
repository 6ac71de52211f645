package commit

import (
	"testing"

	"github.com/kvd-db/kvd/internal/kv"
)

// BenchmarkRequestIDs remembers the names of one client in a window that is full: each
// is looked for, then added, and the oldest goes. One in four of the client's writes
// comes to this partition.
func BenchmarkRequestIDs(b *testing.B) {
	w := newRequestIDs(NewRequestWindow(1 << 16))
	n := requestID{client: 1}
	version := kv.SeqNum(0)
	step := func() {
		n.sequence += 1 + n.sequence*7%8
		version++
		if _, known, err := w.recall(kv.RequestID{ClientID: n.client, Sequence: n.sequence}); known || err != nil {
			b.Fatal("it is new")
		}
		w.add(n, version, n.sequence)
	}
	for range 1 << 16 {
		step()
	}
	for b.Loop() {
		step()
	}
}
