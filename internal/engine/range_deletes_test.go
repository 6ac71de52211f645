package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// rangeDeletes returns a batch of so many range deletes whose bounds have so many bytes.
func rangeDeletes(n, bytesOfKey int) *kv.WriteBatch {
	b := new(kv.WriteBatch)
	for i := range n {
		start := bytes.Repeat([]byte("k"), bytesOfKey)
		copy(start, fmt.Sprintf("%06d", i))
		end := bytes.Clone(start)
		end[bytesOfKey-1] = 0xff
		b.DeleteRange(start, end)
	}
	return b
}

// writersOf are the calls that write a batch.
var writersOf = map[string]func(ctx context.Context, e *Engine, b *kv.WriteBatch) error{
	"apply": func(ctx context.Context, e *Engine, b *kv.WriteBatch) error {
		_, err := e.Apply(ctx, b, buffered)
		return err
	},
	"commit": func(ctx context.Context, e *Engine, b *kv.WriteBatch) error {
		_, err := e.Commit(ctx, &kv.Transaction{Batch: b}, buffered)
		return err
	},
	"execute": func(ctx context.Context, e *Engine, b *kv.WriteBatch) error {
		_, _, err := e.Execute(ctx, nil, b, nil, buffered)
		return err
	},
}

func manyPartitions(partitions int) Options {
	o := small(vfs.NewMem())
	o.Partitions, o.MemtableBytes, o.SegmentBytes = partitions, 16<<20, 64<<20
	return o
}

// A range delete is stored in every partition. So a batch of range deletes that is within the limits by
// its operations and bytes takes as many times as much; one that would take more than the largest batch
// of other writes is refused before the log has it.
func TestABatchOfRangeDeletesTakesABoundedNumberOfBytes(t *testing.T) {
	for name, b := range map[string]func() *kv.WriteBatch{
		"long":  func() *kv.WriteBatch { return rangeDeletes(1024, 4<<10) },
		"short": func() *kv.WriteBatch { return rangeDeletes(4096, 6) },
	} {
		for call, write := range writersOf {
			t.Run(name+", "+call, func(t *testing.T) {
				e := open(t, manyPartitions(64))
				err := write(t.Context(), e, b())
				s := e.Stats()
				assert.LessOrEqual(t, s.Log.Bytes, uint64(kv.DefaultLimits.MostTaken()), "%d MiB in the log", s.Log.Bytes>>20)
				assert.LessOrEqual(t, e.budget.used(), int64(kv.DefaultLimits.MostTaken()), "%d MiB in memtables", e.budget.used()>>20)
				require.ErrorIs(t, err, kv.ErrTooLarge)
				assert.ErrorContains(t, err, "range deletes is stored in all 64 partitions; split it into several batches")
			})
		}
	}
}

// Whatever batches of range deletes come at the same time, the memtables exceed their bound by one of them
// at most.
func TestConcurrentBatchesOfRangeDeletesAreCounted(t *testing.T) {
	const callers, partitions = 8, 16
	rounds := 2
	if testsize.Reduced() {
		rounds = 1
	}
	most := kv.DefaultLimits.MostTaken() / partitions / (12 + kv.RangeDeleteBytes)
	for _, n := range []int{4096, most} {
		for call, write := range writersOf {
			if testsize.Reduced() && n == most && call != "apply" {
				continue
			}
			t.Run(fmt.Sprintf("%d, %s", n, call), func(t *testing.T) {
				e := open(t, manyPartitions(partitions))
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for range rounds {
							err := write(t.Context(), e, rangeDeletes(n, 6))
							if !errors.Is(err, kv.ErrTooLarge) && !errors.Is(err, kv.ErrOverloaded) {
								assert.NoError(t, err)
							}
							assert.Equal(t, n > most, errors.Is(err, kv.ErrTooLarge))
							// With 16 partitions no call is admitted at nine eighths of the budget, and of
							// large calls one at a time.
							assert.LessOrEqual(t, e.budget.used(), e.opts.MemtableBytes*9/8+int64(kv.DefaultLimits.MostTaken()), "bytes in memtables")
						}
					})
				}
				all.Wait()
			})
		}
	}
}

// One range delete is accepted in any store, whatever its bounds, and so is the largest batch of other
// writes with it in a store of as many partitions as a new one has at most.
func TestOneRangeDeleteAlwaysFits(t *testing.T) {
	testsize.OneGoroutine(t)
	limits := kv.DefaultLimits
	longest := bytes.Repeat([]byte("k"), limits.KeyBytes)
	for _, end := range [][]byte{append(bytes.Clone(longest[1:]), 'l'), nil} {
		var b kv.WriteBatch
		b.DeleteRange(longest, end)
		limits.RangeCopies = descriptor.MaxPartitions
		require.NoError(t, b.Check(limits))

		limits.RangeCopies = 64
		for left := limits.BatchBytes - b.Bytes(); left > 0; {
			n := min(left, limits.ValueBytes)
			b.Put(fmt.Appendf(nil, "%d", left), make([]byte, max(n-len(fmt.Sprint(left)), 0)))
			left -= n
		}
		require.NoError(t, b.Check(limits))

		o := manyPartitions(descriptor.MaxPartitions)
		o.MemtableBytes = 4 << 20
		e := open(t, o)
		put(t, e, string(longest), "v", buffered)
		_, err := e.DeleteRange(t.Context(), kv.Range{Start: longest, End: end}, buffered)
		require.NoError(t, err)
		_, found := get(t, e, string(longest))
		require.False(t, found)
	}
}
