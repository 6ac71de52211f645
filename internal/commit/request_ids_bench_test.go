package commit

import (
	"testing"

	"github.com/kvd-db/kvd/internal/kv"
)

// BenchmarkRequestIDs remembers the names of one client in a window that is full: each
// is looked for, then added, and the oldest goes. One in four of the client's writes
// comes to this partition.
func BenchmarkRequestIDs(b *testing.B) {
	w := newRequestIDs(1 << 16)
	n := requestID{client: 1}
	step := func() {
		n.sequence += 1 + n.sequence*7%8
		if _, _, known := w.find(n); known {
			b.Fatal("it is new")
		}
		w.add(n, kv.SeqNum(n.sequence), n.sequence)
	}
	for range w.size {
		step()
	}
	for b.Loop() {
		step()
	}
}
