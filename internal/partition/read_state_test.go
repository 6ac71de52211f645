package partition

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// A state is never read at a number that it does not have: every write seals a
// memtable here, while readers ask for the two again and again.
func TestAStateHasWhatMayBeReadFromIt(t *testing.T) {
	s := newScript(t)
	s.p.opts.FlushKeys = 1
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				state, at, _ := s.p.acquireVisible()
				newest := state.levels.version.FlushedSeq
				for table := range state.memtables() {
					newest = max(newest, table.MaxSeq())
				}
				state.release()
				if !assert.GreaterOrEqual(t, newest, at) {
					return
				}
			}
		})
	}
	for i := range 1000 {
		call := NewCall(1)
		w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: fmt.Appendf(nil, "%04d", i)}, Durability: kv.DurabilityMemory}
		s.p.Submit(t.Context(), NewGroup(call, []*kv.Write{w}))
		<-call.Done()
		if i%50 == 0 {
			require.NoError(t, s.p.Flush(t.Context()))
		}
	}
	close(stop)
	readers.Wait()
}
