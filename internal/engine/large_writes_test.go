package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// stepped is a disk whose large writes to the log each wait for a step of the test.
type stepped struct {
	step    chan struct{}
	written atomic.Int64 // bytes of the large writes that were let through
}

const largeFrame = 256 << 10

func (s *stepped) Inject(op faultfs.Op) faultfs.Fault {
	if op.Kind != faultfs.Write || !faultfs.OnName("*.wal")(op) || op.Len < largeFrame {
		return faultfs.Fault{}
	}
	return faultfs.Fault{Delay: func() {
		<-s.step
		s.written.Add(int64(op.Len))
	}}
}

// However many writes of large values are under way, in whatever way they come, a small
// write waits for a bounded number of their bytes, in its own partition and in others.
func TestASmallWriteDoesNotQueueAfterAllLargeOnes(t *testing.T) {
	const size, callers = 1 << 20, 20
	value := strings.Repeat("v", size)
	for name, write := range map[string]func(e *Engine, key string) error{
		"put": func(e *Engine, key string) error {
			_, err := e.Put(context.Background(), []byte(key), []byte(value), buffered)
			return err
		},
		"write": func(e *Engine, key string) error {
			w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)}, Durability: kv.DurabilityBuffered}
			return errors.Join(e.Write(context.Background(), []*kv.Write{w}), w.Err)
		},
		"condition": func(e *Engine, key string) error {
			w := &kv.Write{
				Op: kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)}, Durability: kv.DurabilityBuffered,
				If: &kv.Condition{Kind: kv.IfPresent},
			}
			return errors.Join(e.Write(context.Background(), []*kv.Write{w}), w.Err)
		},
		"batch": func(e *Engine, key string) error {
			var b kv.WriteBatch
			b.Put([]byte(key), []byte(value))
			b.Put([]byte(key+"'"), []byte("v"))
			_, err := e.Apply(context.Background(), &b, buffered)
			return err
		},
		"transaction": func(e *Engine, key string) error {
			var b kv.WriteBatch
			b.Put([]byte(key), []byte(value))
			_, err := e.Commit(context.Background(), &kv.Transaction{Batch: &b}, buffered)
			return err
		},
		"execute": func(e *Engine, key string) error {
			var b kv.WriteBatch
			b.Put([]byte(key), []byte(value))
			_, _, err := e.Execute(context.Background(), nil, &b, nil, buffered)
			return err
		},
	} {
		if testsize.Reduced() && name != "put" && name != "batch" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := faultfs.Wrap(vfs.NewMem(), nil)
				o := small(disk)
				o.MemtableBytes, o.SegmentBytes = 256<<20, 256<<20
				e := open(t, o)
				for p := range 4 {
					for _, k := range keysIn(e, p, callers) {
						put(t, e, k, "v", buffered)
					}
				}
				s := &stepped{step: make(chan struct{})}
				disk.SetInjector(s)
				var large sync.WaitGroup
				for i := range callers {
					k := keysIn(e, i%4, callers)[i]
					large.Go(func() { assert.NoError(t, write(e, k)) })
				}
				synctest.Wait()
				var done atomic.Int64
				for p := range 4 {
					go func() {
						put(t, e, keysIn(e, p, 1)[0], "small", buffered)
						done.Add(1)
					}()
				}
				for synctest.Wait(); done.Load() < 4; synctest.Wait() {
					s.step <- struct{}{}
				}
				waited := s.written.Load()
				close(s.step)
				large.Wait()
				t.Logf("small writes waited for %d KiB of %d", waited>>10, callers*size>>10)
				// At most so much is admitted at a time, a call of a little more than size each.
				const admitted = largeWriteBytes / (size + 1) * size
				// A small write waits until the leader of its partition has written the group that
				// it is writing, after which another goroutine writes the log; then for what
				// was admitted before it, and for what shares its record; and if a caller leads its
				// partition by then, for the group of that one. Each is what is admitted at most.
				assert.LessOrEqual(t, waited, int64(3*admitted+(callers<<10)), "small writes waited for so many bytes of large ones")
			})
		})
	}
}

// Under pressure a small write is delayed by small writes alone, and a large one by all:
// small writes leave large ones a quarter of the rate.
func TestSmallWritesArePacedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1<<30, 1)
		b.use(1)
		rate := rateAt(1, initialDrain)
		const large = 4 << 20
		var all sync.WaitGroup
		var through atomic.Int64
		for range 10 {
			all.Go(func() {
				if b.admit(t.Context(), large) == nil {
					through.Add(1)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, b.admit(t.Context(), 100))
		assert.Zero(t, time.Since(begin), "a small write waited for large ones")
		all.Wait()

		// Small writes that take all they can leave something to large ones.
		b.use(1)
		through.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var small atomic.Int64
		for range 8 {
			all.Go(func() {
				for b.admit(ctx, 32<<10) == nil {
					small.Add(32 << 10)
				}
			})
		}
		all.Go(func() {
			for ctx.Err() == nil {
				if b.admit(ctx, large) == nil {
					through.Add(large)
				}
			}
		})
		all.Wait()
		t.Logf("small %.2f, large %.2f of the rate", float64(small.Load())/rate/10, float64(through.Load())/rate/10)
		assert.InEpsilon(t, rate*10, float64(small.Load()), 0.1)
		assert.GreaterOrEqual(t, float64(through.Load()), rate*10/5)
		assert.LessOrEqual(t, float64(through.Load()), rate*10/3)
	})
}
