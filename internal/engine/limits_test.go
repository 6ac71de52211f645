package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// hardLimits are the largest that an operator may choose.
var hardLimits = kv.Limits{
	KeyBytes: kv.MaxKeyBytes, ValueBytes: kv.MaxValueBytes, BatchOps: kv.MaxBatchOps, BatchBytes: kv.MaxBatchBytes,
}

// Whatever the store accepts at its limits, it has again after a kill, from its log and
// from its tables.
func TestWhatIsAcceptedAtALimitIsRecovered(t *testing.T) {
	key := func(c byte, n int) []byte { return bytes.Repeat([]byte{c}, n) }
	apply := func(ctx context.Context, e *Engine, o kv.WriteOptions, ops ...kv.Op) error {
		var b kv.WriteBatch
		for _, op := range ops {
			b.Add(op)
		}
		_, err := e.Apply(ctx, &b, o)
		return err
	}
	one := func(op kv.Op) func(context.Context, *Engine) error {
		return func(ctx context.Context, e *Engine) error { return apply(ctx, e, synced, op) }
	}
	longest := key('k', kv.MaxKeyBytes)
	sharing := append(key('k', kv.MaxKeyBytes-1), 'l')
	for name, write := range map[string]func(context.Context, *Engine) error{
		"the longest key": one(kv.Op{Kind: kv.KindPut, Key: longest}),
		"the longest keys, which differ in their last byte": func(ctx context.Context, e *Engine) error {
			return apply(ctx, e, synced, kv.Op{Kind: kv.KindPut, Key: longest}, kv.Op{Kind: kv.KindPut, Key: sharing})
		},
		"the largest value": one(kv.Op{Kind: kv.KindPut, Key: []byte("k"), Value: make([]byte, kv.MaxValueBytes)}),
		"the last moment":   one(kv.Op{Kind: kv.KindPut, Key: []byte("k"), Expiry: math.MaxUint64}),
		"a range of the longest keys": func(ctx context.Context, e *Engine) error {
			return apply(ctx, e, synced, kv.Op{Kind: kv.KindRangeDelete, Key: longest, Value: sharing}, kv.Op{Kind: kv.KindPut, Key: longest})
		},
		"a range without an end": func(ctx context.Context, e *Engine) error {
			last := append(key(0xff, kv.MaxKeyBytes-1), 0xfe)
			return errors.Join(
				apply(ctx, e, synced, kv.Op{Kind: kv.KindPut, Key: last}, kv.Op{Kind: kv.KindPut, Key: last[:1]}, kv.Op{Kind: kv.KindPut, Key: []byte("a")}),
				apply(ctx, e, synced, kv.Op{Kind: kv.KindRangeDelete, Key: []byte("b")}))
		},
		"a range that holds no key": func(ctx context.Context, e *Engine) error {
			return errors.Join(
				apply(ctx, e, synced, kv.Op{Kind: kv.KindPut, Key: []byte("a")}),
				apply(ctx, e, synced, kv.Op{Kind: kv.KindRangeDelete, Key: []byte("b"), Value: []byte("a")}))
		},
		"the highest name": func(ctx context.Context, e *Engine) error {
			o := synced
			o.RequestID = kv.RequestID{ClientID: math.MaxUint64, Sequence: math.MaxUint64}
			return apply(ctx, e, o, kv.Op{Kind: kv.KindPut, Key: []byte("k")}, kv.Op{Kind: kv.KindDelete, Key: []byte("l")})
		},
		"the most operations of a batch": func(ctx context.Context, e *Engine) error {
			ops := make([]kv.Op, kv.MaxBatchOps)
			for i := range ops {
				ops[i] = kv.Op{Kind: kv.KindPut, Key: fmt.Appendf(nil, "%06x", i)}
			}
			return apply(ctx, e, synced, ops...)
		},
		"the most writes of a call": func(ctx context.Context, e *Engine) error {
			w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("k")}, Durability: kv.DurabilitySync}
			if err := e.Write(ctx, slices.Repeat([]*kv.Write{&w}, kv.MaxBatchOps)); err != nil {
				return err
			}
			return w.Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			many, large := strings.HasPrefix(name, "the most"), name == "the largest value"
			if (many || large) && testsize.Reduced() {
				t.Skip("a million operations, or 64 MiB, take long")
			}
			thresholds := []int{0}
			if large {
				thresholds = append(thresholds, kv.MaxValueBytes+1) // it stays with its key
			}
			for _, threshold := range thresholds {
				disk := vfs.NewMem()
				o := small(disk)
				o.Partitions, o.limits, o.ValueThreshold, o.MemtableBytes = 1, hardLimits, threshold, 1<<30
				e := open(t, o)
				require.NoError(t, write(t.Context(), e))
				digest := func(e *Engine) (keys, bytes int) {
					s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
					require.NoError(t, err)
					for s.Next() {
						keys, bytes = keys+1, bytes+len(s.Item().Key)+len(s.Item().Value)
					}
					require.NoError(t, s.Err())
					require.NoError(t, s.Close())
					return keys, bytes
				}
				keys, bytes := digest(e)
				require.Positive(t, keys)
				check := func(e *Engine) {
					k, b := digest(e)
					require.Equal(t, []int{keys, bytes}, []int{k, b})
				}
				o.FS = disk.KillImage()
				require.NoError(t, e.Close())
				e = open(t, o)
				check(e)
				if many { // tables know nothing of calls and batches
					continue
				}
				require.NoError(t, e.Flush(t.Context()))
				check(e)
				require.NoError(t, e.CompactAll(t.Context()))
				require.NoError(t, e.Close())
				check(open(t, o))
			}
		})
	}
}

// What is over a limit is refused before it is in the log, with the figures.
func TestWhatIsOverALimitIsNotLogged(t *testing.T) {
	testsize.OneGoroutine(t)
	disk := vfs.NewMem()
	o := small(disk)
	o.Partitions, o.limits = 1, hardLimits
	e := open(t, o)
	put(t, e, "before", "1", synced)
	before := e.Stats().Log.Records
	many := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("k")}, Durability: kv.DurabilitySync}
	large := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("k"), Value: make([]byte, kv.MaxValueBytes)}, Durability: kv.DurabilitySync}
	batch := func(ops ...kv.Op) func() error {
		return func() error {
			var b kv.WriteBatch
			for _, op := range ops {
				b.Add(op)
			}
			_, err := e.Apply(t.Context(), &b, synced)
			return err
		}
	}
	for name, test := range map[string]struct {
		write   func() error
		figures []string
	}{
		"key":                {batch(kv.Op{Kind: kv.KindPut, Key: make([]byte, kv.MaxKeyBytes+1)}), []string{"65537", "65536"}},
		"start of a range":   {batch(kv.Op{Kind: kv.KindRangeDelete, Key: make([]byte, kv.MaxKeyBytes+1)}), []string{"65537", "65536"}},
		"end of a range":     {batch(kv.Op{Kind: kv.KindRangeDelete, Key: []byte{0}, Value: append([]byte{1}, make([]byte, kv.MaxKeyBytes)...)}), []string{"65537", "65536"}},
		"value":              {batch(kv.Op{Kind: kv.KindPut, Key: []byte("k"), Value: make([]byte, kv.MaxValueBytes+1)}), []string{"67108865", "67108864"}},
		"operations":         {batch(slices.Repeat([]kv.Op{many.Op}, kv.MaxBatchOps+1)...), []string{"1048577", "1048576"}},
		"bytes":              {batch(slices.Repeat([]kv.Op{large.Op}, 5)...), []string{"268435456"}},
		"writes of one call": {func() error { return e.Write(t.Context(), slices.Repeat([]*kv.Write{&many}, kv.MaxBatchOps+1)) }, []string{"1048577", "1048576"}},
		"bytes of one call":  {func() error { return e.Write(t.Context(), slices.Repeat([]*kv.Write{&large}, 5)) }, []string{"335544325", "268435456"}},
	} {
		err := test.write()
		require.ErrorIs(t, err, kv.ErrTooLarge, name)
		for _, figure := range test.figures {
			require.ErrorContains(t, err, figure, name)
		}
	}
	require.Equal(t, before, e.Stats().Log.Records)
	require.NoError(t, e.Close())
	e = open(t, o)
	require.Equal(t, map[string]string{"before": "1"}, contents(t, e))
}
