package engine

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// Reads that share a budget copy values, from memtables and tables alike, until the budget
// is used up, and then read nothing from disk.
func TestReadsStayWithinTheirBudget(t *testing.T) {
	const keys, size, budget = 200, 32 << 10, 200 << 10
	for _, where := range []string{"memtables", "tables"} {
		for _, spread := range []bool{true, false} {
			disk := faultfs.Wrap(vfs.NewMem(), nil)
			o := small(disk)
			o.MemtableBytes, o.CacheBytes = 64<<20, 64<<10
			e := open(t, o)
			names := keysIn(e, 0, keys)
			for i := range keys {
				if spread {
					names[i] = key(i)
				}
				put(t, e, names[i], strings.Repeat("v", size), memory)
			}
			if where == "tables" {
				require.NoError(t, e.CompactAll(t.Context())) // so that nothing else reads
			}
			ask := func(b *kv.ReadBudget) []*kv.Lookup {
				var reads []*kv.Lookup
				for _, name := range names {
					reads = append(reads, &kv.Lookup{Key: []byte(name), Budget: b})
				}
				return reads
			}
			check := func(reads []*kv.Lookup) {
				t.Helper()
				bytes, refused := 0, 0
				for _, r := range reads {
					bytes += len(r.Value)
					if !r.Found {
						refused++
						require.ErrorIs(t, r.Err, kv.ErrBudgetSpent)
						require.Nil(t, r.Value)
					}
				}
				assert.Greater(t, bytes, budget)
				assert.LessOrEqual(t, bytes, budget+size, "%s, %v", where, spread)
				assert.Positive(t, refused)
			}
			var fetched atomic.Int64
			disk.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
				if op.Kind == faultfs.Read {
					fetched.Add(int64(op.Len))
				}
				return faultfs.Fault{}
			}))
			reads := ask(kv.NewReadBudget(budget))
			require.NoError(t, e.Lookup(t.Context(), reads))
			check(reads)
			assert.Less(t, fetched.Load(), int64(keys*size/2), "blocks of values that are not returned are not read")

			b := kv.NewReadBudget(budget)
			reads = ask(b)
			_, err := e.LookupAt(t.Context(), reads, 0)
			require.NoError(t, err)
			check(reads)
			assert.True(t, b.Spent())

			b.Reset(keys * size)
			_, err = e.LookupAt(t.Context(), reads, 0)
			require.NoError(t, err)
			for _, r := range reads {
				require.NoError(t, r.Err)
				require.Len(t, r.Value, size)
			}
			assert.False(t, b.Spent(), "what is just within the bound is answered")
		}
	}
}
