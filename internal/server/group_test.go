package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
)

// doubtfulStore has the n-th write in doubt.
type doubtfulStore struct {
	limitsOnly
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
		store := &doubtfulStore{limitsOnly{limits: kv.DefaultLimits}, n}
		s := newServer(store, Options{Deadline: time.Second}, defaultLifetimes)
		stream := new(answers)
		p := &pipeline{carriage: stream, server: s, ctx: t.Context()}
		groups := p.split(nil, &f, nil, time.Now())
		require.Len(t, groups, 1)
		assert.Equal(t, held, groups[0].serve(), "write %d in doubt", n)
		assert.Len(t, stream.tags, len(f.Ops))
	}
}
