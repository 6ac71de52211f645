package frameapi

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// echoStore finds each key as its own value, in the memory of the lookup, as the engine does.
type echoStore struct{ servicetest.LimitsOnly }

func (echoStore) Now() uint64 { return 1 }

func (echoStore) Lookup(_ context.Context, reads []*kv.Lookup) error {
	for _, r := range reads {
		r.Found, r.Value = true, append(r.Value[:0], r.Key...)
	}
	return nil
}

func (echoStore) LookupAt(ctx context.Context, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error) {
	return at, echoStore{}.Lookup(ctx, reads)
}

// valued is a transport that keeps the values of the answers.
type valued struct {
	scripted
	values map[uint64]string
}

func (v *valued) Send(r *frame.Response, _ *ReceiveToken) {
	for _, one := range r.Results {
		v.values[one.Tag] = string(one.Value)
	}
}

// A frame of more reads than the store takes at once is answered in parts: the lookups of one part
// have the memory of those before.
func TestReadsBeyondTheLimitOfTheStoreAreAnsweredInParts(t *testing.T) {
	limits := kv.DefaultLimits
	limits.BatchOps = 2
	for _, at := range []uint64{0, 7} {
		s := service.New(echoStore{servicetest.LimitsOnly{L: limits}}, service.Options{})
		transport := &valued{values: make(map[uint64]string)}
		var ops []frame.Op
		want := make(map[uint64]string)
		for i, key := range []string{"a", "b", "c", "d", "e"} {
			ops = append(ops, frame.Op{Tag: uint64(i), Kind: frame.Get, Key: []byte(key), AtVersion: at})
			want[uint64(i)] = key
		}
		transport.frames = [][]frame.Op{ops}
		p := &Pipeline{transport: transport, frames: newFrames(s), ctx: t.Context(), age: time.Hour}
		require.NoError(t, p.Run())
		assert.Equal(t, want, transport.values, "at %d", at)
	}
}
