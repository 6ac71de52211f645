package partition

import (
	"testing"

	"github.com/kvd-db/kvd/internal/kv"
)

// BenchmarkNameWindow remembers the names of one client in a window that is full: each
// is looked for, then added, and the oldest goes. One in four of the client's writes
// comes to this partition.
func BenchmarkNameWindow(b *testing.B) {
	w := newNameWindow(1 << 16)
	n := name{client: 1}
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
