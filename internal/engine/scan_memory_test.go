package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// countedMemory has a limit, and remembers the most that was taken at once.
type countedMemory struct {
	mu                sync.Mutex
	limit, used, peak int64
}

func (m *countedMemory) Take(bytes, _ int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+bytes > m.limit {
		return false
	}
	m.used += bytes
	m.peak = max(m.peak, m.used)
	return true
}

func (m *countedMemory) Wait(_ context.Context, bytes, held int64) error {
	if !m.Take(bytes, held) {
		return kv.ErrOverloaded
	}
	return nil
}

func (m *countedMemory) Give(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= bytes
}

// A scan takes memory for its batches and for one large value at a time, wherever the
// values lie; with little memory it reads smaller batches, and with none it is refused.
// It gives back all memory that it took.
func TestScansTakeMemory(t *testing.T) {
	const size = 1 << 20
	keys := 20
	if testsize.Reduced() {
		keys = 4
	}
	for _, where := range []string{"memtable", "inline", "apart"} {
		t.Run(where, func(t *testing.T) {
			o := small(vfs.NewMem())
			o.MemtableBytes = 256 << 20
			if where == "inline" {
				o.ValueThreshold = 4 << 20
			}
			e := open(t, o)
			want := make(map[string]string)
			var names []string
			for i := range 4 * keys {
				name, value := fmt.Sprintf("k%03d", i), fmt.Sprint(i)
				if i%4 == 0 {
					value = strings.Repeat(string(rune('a'+i/4%26)), size+i)
				}
				put(t, e, name, value, memory)
				want[name], names = value, append(names, name)
				if i%7 == 0 {
					put(t, e, name, value, memory) // of two versions the newer
				}
			}
			if where != "memtable" {
				require.NoError(t, e.CompactAll(t.Context()))
			}
			for _, reverse := range []bool{false, true} {
				for _, limit := range []int64{64 << 20, 2*size + 2*size/4} {
					m := &countedMemory{limit: limit}
					b := kv.NewReadBudget(0)
					b.Charge(m)
					s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{Reverse: reverse, Budget: b})
					require.NoError(t, err)
					var got []string
					for s.Next() {
						item := s.Item()
						got = append(got, string(item.Key))
						require.Equal(t, want[string(item.Key)], string(item.Value), "%s", item.Key)
						b.Return()
					}
					require.NoError(t, s.Err())
					require.NoError(t, s.Close())
					if reverse {
						slices.Reverse(got)
					}
					assert.Equal(t, names, got)
					assert.Zero(t, m.used, "all was given back")
					assert.LessOrEqual(t, m.peak, int64(2*(size+4*keys)+8*(2*batchBytes+kv.LargeValue)), "one large value, twice, and batches")
				}
			}
			b := kv.NewReadBudget(0)
			m := &countedMemory{limit: size}
			b.Charge(m)
			s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{Budget: b})
			require.NoError(t, err)
			for s.Next() {
				b.Return()
			}
			require.ErrorIs(t, s.Err(), kv.ErrOverloaded)
			require.NoError(t, s.Close())
			b.Return()
			assert.Zero(t, m.used)
		})
	}
}

// A scan of keys leaves nothing out, and reads no value for itself.
func TestScansOfKeysReadNoLargeValues(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "k", strings.Repeat("v", 2*kv.LargeValue), memory)
	b := kv.NewReadBudget(0)
	b.Charge(&countedMemory{limit: 1 << 20})
	s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{KeysOnly: true, Budget: b})
	require.NoError(t, err)
	require.True(t, s.Next())
	assert.Nil(t, s.Item().Value)
	assert.Zero(t, b.Held())
	require.NoError(t, s.Close())
}
