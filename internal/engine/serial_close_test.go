package engine

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A read at any version that is in progress when the store is closed ends with an answer or
// an error.
func TestReadsEndWhenTheStoreIsClosed(t *testing.T) {
	for range 20 {
		e := open(t, small(vfs.NewMem()))
		put(t, e, "a", "1", memory)
		var reading, readers sync.WaitGroup
		for i := range 4 {
			reading.Add(1)
			readers.Go(func() {
				reading.Done()
				guards := []kv.Guard{{Key: []byte("a"), Condition: kv.Condition{Kind: kv.IfPresent}}}
				for err := error(nil); err == nil; {
					if i%2 == 0 {
						_, err = e.LookupAt(t.Context(), []*kv.Lookup{{Key: []byte("a")}}, 0)
					} else {
						_, _, err = e.Execute(t.Context(), guards, nil, nil, memory)
					}
				}
			})
		}
		reading.Wait()
		require.NoError(t, e.Close())
		ended := make(chan struct{})
		go func() {
			readers.Wait()
			close(ended)
		}()
		if _, ok := testwait.Receive(t, ended, "a reader of a closed store returns"); !ok {
			return
		}
	}
}
