package frameapi

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// doubtfulStore has the n-th write in doubt.
type doubtfulStore struct {
	servicetest.LimitsOnly
	n int
}

func (s *doubtfulStore) Write(_ context.Context, writes []*kv.Write) error {
	for _, w := range writes {
		if s.n == 0 {
			w.Err = fmt.Errorf("%w: %w", kv.ErrUncertain, context.Canceled)
		}
		s.n--
	}
	return nil
}

// The memory of a frame is not used again while the store may be at one of its
// writes, in whichever call that was.
func TestTheMemoryOfAWriteInDoubtIsKept(t *testing.T) {
	var f frame.Request
	for tag := range uint64(3 * previousOps) {
		f.Ops = append(f.Ops, frame.Op{Tag: tag, Kind: frame.Put, Key: []byte("k"), ReturnPrevious: true})
	}
	for n, held := range map[int]bool{0: true, previousOps: true, 3*previousOps - 1: true, 3 * previousOps: false} {
		store := &doubtfulStore{servicetest.LimitsOnly{L: kv.DefaultLimits}, n}
		s := service.New(store, service.Options{Deadline: time.Hour})
		stream := new(answers)
		p := &Pipeline{transport: stream, frames: newFrames(s), ctx: t.Context()}
		batches := p.split(nil, &f, nil, service.Caller{}, time.Now())
		require.Len(t, batches, 1)
		assert.Equal(t, held, batches[0].serve(), "write %d in doubt", n)
		assert.Len(t, stream.tags, len(f.Ops))
	}
}

// The memory of values that are not large serves the next frames; what was read
// before is not in it.
func TestTheMemoryOfValuesIsUsedAgain(t *testing.T) {
	g := new(batch)
	for i, size := range []int{10, keptValue, keptValue + 1, 0} {
		g.ops = append(g.ops, &frame.Op{Key: []byte{byte(i)}})
		g.lookups = append(g.lookups, kv.Lookup{Key: []byte{byte(i)}, Found: true, Version: 1, Value: make([]byte, size)})
	}
	g.reset()
	require.Empty(t, g.lookups)
	g.ops = append(g.ops, &frame.Op{Key: []byte("a")}, &frame.Op{Key: []byte("b")}, &frame.Op{Key: []byte("c")})
	g.ask(3)
	for i, room := range []int{10, keptValue, 0} {
		assert.Equal(t, kv.Lookup{Key: g.ops[i].Key, Budget: &g.call.Budget, Value: g.lookups[i].Value}, g.lookups[i])
		assert.Empty(t, g.lookups[i].Value)
		assert.Equal(t, room, cap(g.lookups[i].Value))
		assert.Same(t, &g.lookups[i], g.reads[i])
	}
}

// The batches of a frame are those of its keys, in the order of their first operations, however many.
func TestSplitMakesABatchOfEachKey(t *testing.T) {
	s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, service.Options{Deadline: time.Hour})
	p := &Pipeline{transport: new(answers), frames: newFrames(s), ctx: t.Context()}
	for _, versions := range []int{1, 3, 15, 16, 17, 100, frame.MaxOps} {
		var f frame.Request
		for i := range frame.MaxOps {
			f.Ops = append(f.Ops, frame.Op{Tag: uint64(i), Kind: frame.Get, Key: []byte("k"), AtVersion: uint64(i*7%versions + 1)})
		}
		split := p.split(nil, &f, nil, service.Caller{}, time.Now())
		require.Len(t, split, versions)
		ops := 0
		for i, of := range split {
			require.EqualValues(t, i, of.ops[0].Tag)
			for _, op := range of.ops {
				require.Equal(t, keyOf(&f, op), of.key)
			}
			ops += len(of.ops)
		}
		require.Equal(t, frame.MaxOps, ops)
		require.Equal(t, int64(versions-1)*oneBatchBytes+int64(min(versions-1, maxBatchWorkers))*callWorkerBytes, batchBytes(&f))
	}
}

// BenchmarkSplit sorts the operations of a full frame into batches: reads of the newest state, which are
// one, and reads at a version each, which are as many as there are operations.
func BenchmarkSplit(b *testing.B) {
	for _, versions := range []int{1, 8, frame.MaxOps} {
		b.Run(fmt.Sprintf("versions=%d", versions), func(b *testing.B) {
			s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, service.Options{Deadline: time.Hour})
			p := &Pipeline{transport: new(answers), frames: newFrames(s), ctx: b.Context()}
			var f frame.Request
			for i := range frame.MaxOps {
				f.Ops = append(f.Ops, frame.Op{Tag: uint64(i), Kind: frame.Get, Key: []byte("k"), AtVersion: uint64(i % versions)})
			}
			var split []*batch
			for b.Loop() {
				batchBytes(&f)
				split = p.split(split[:0], &f, nil, service.Caller{}, time.Now())
				require.Len(b, split, versions)
				for _, of := range split {
					of.reset()
					batches.Put(of)
				}
			}
		})
	}
}
