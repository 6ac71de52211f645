package engine

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Many goroutines increment one key by compare-and-set while every few writes seal a
// memtable: no increment is lost, and no condition holds on a version that was replaced.
func TestCountersSurviveSeals(t *testing.T) {
	o := small(vfs.NewMem())
	o.FlushKeys, o.MemtableBytes = 2, 64<<20
	e := open(t, o)
	const goroutines, each = 8, 100
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range each {
				if !assert.NoError(t, count(t, e)) {
					return
				}
			}
		})
	}
	all.Wait()
	requireValue(t, e, "counter", strconv.Itoa(goroutines*each))
	require.NoError(t, e.Err())
}

// count increments the counter; it tries until no other write comes in between.
func count(t *testing.T, e *Engine) error {
	key := []byte("counter")
	for {
		was, err := e.Get(t.Context(), key)
		condition := kv.Condition{Kind: kv.IfVersion, Version: was.Version}
		if errors.Is(err, kv.ErrNotFound) {
			condition = kv.Condition{Kind: kv.IfAbsent}
		} else if err != nil {
			return err
		}
		n := 0
		if len(was.Value) > 0 {
			if n, err = strconv.Atoi(string(was.Value)); err != nil {
				return err
			}
		}
		w := kv.Write{
			Op: kv.Op{Kind: kv.KindPut, Key: key, Value: []byte(strconv.Itoa(n + 1))},
			If: &condition, Durability: kv.DurabilityMemory,
		}
		if err := e.Write(t.Context(), []*kv.Write{&w}); err != nil {
			return err
		}
		if !errors.Is(w.Err, kv.ErrConditionFailed) {
			return w.Err
		}
	}
}
