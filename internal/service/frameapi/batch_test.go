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
		s := service.New(store, service.Options{Deadline: time.Second})
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
