package partition_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
)

// A state is never read at a number that it does not have: every write seals a
// memtable here, while readers ask for the two again and again.
func TestAStateHasWhatMayBeReadFromIt(t *testing.T) {
	s := newScript(t)
	require.NoError(t, s.close())
	o := s.options()
	o.FlushKeys = 1
	s.openWith(o)
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
				at, newest := s.p.NewestVisible()
				if newest < at {
					t.Errorf("visible up to %d, and the state has only %d", at, newest)
					return
				}
				runtime.Gosched() // or the writer seldom has its turn
			}
		})
	}
	for i := range 500 {
		call := commit.NewCall(1)
		w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: fmt.Appendf(nil, "%04d", i)}, Durability: kv.DurabilityMemory}
		commit.Submit(t.Context(), []*commit.WriteGroup{s.c.NewWriteGroup(call, []*kv.Write{w})})
		<-call.Done()
		if i%50 == 0 {
			require.NoError(t, s.p.Flush(t.Context()))
		}
	}
	close(stop)
	readers.Wait()
}
