package kvd

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// queued returns a pipeline with n writes, of so many keys in turn.
func queued(n, keys int) *Pipeline {
	p := new(Pipeline)
	for i := range n {
		p.add(backend.Put, binary.BigEndian.AppendUint32(nil, uint32(i%keys)))
	}
	return p
}

// runs cuts the queue as Do does, and returns how many runs it has and the slots that were cleared
// for them.
func (p *Pipeline) runs() (runs, slots int) {
	for rest := p.queue; len(rest) > 0; runs++ {
		rest = rest[p.independent(rest):]
		slots += len(p.touched.slots)
	}
	return runs, slots
}

// The work for a run is bounded by its length, whatever the length of the queue.
func TestTheWorkForARunGoesByItsLength(t *testing.T) {
	const n = 20_000
	for _, keys := range []int{1, 10, 100, 1000, n} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			runs, slots := queued(n, keys).runs()
			assert.Equal(t, n/keys, runs)
			assert.LessOrEqual(t, slots, 256*runs+16*n)
		})
	}
}

// A run ends before the first operation that depends on one of it, wherever that is.
func TestARunEndsBeforeTheFirstConflict(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 63, 64, 65, 255, 256, 257, 1024, 1025, 5000} {
		for range 10 {
			p := queued(n, n)
			require.Equal(t, n, p.independent(p.queue))
			later := draw.IntN(n)
			earlier := draw.IntN(later + 1)
			p.queue[later].operation.Op.Key = p.queue[earlier].operation.Op.Key
			want := n
			if earlier < later {
				want = later
			}
			require.Equal(t, want, p.independent(p.queue), "%d of %d", later, n)
		}
	}
}

// BenchmarkRuns cuts queues into runs, without performing them.
func BenchmarkRuns(b *testing.B) {
	for _, n := range []int{16, 1_000, 20_000} {
		for _, keys := range []int{1, n} {
			b.Run(fmt.Sprintf("operations=%d/keys=%d", n, keys), func(b *testing.B) {
				p := queued(n, keys)
				for b.Loop() {
					p.runs()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/operation")
			})
		}
	}
}
