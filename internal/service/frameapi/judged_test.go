package frameapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/vfs"
)

// coded is a transport that keeps the codes of the answers.
type coded struct {
	scripted
	codes map[uint64]service.Code
}

func (c *coded) Send(r *frame.Response, _ *ReceiveToken) {
	for _, one := range r.Results {
		c.codes[one.Tag] = service.Code(one.Code)
	}
}

// A read that memory has answered with the token waits for the others of its frame, and is judged
// with them.
func TestAReadWithTheTokenIsJudgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		token, id, hash := auth.NewToken()
		may := func(prefix string) {
			text, err := auth.Encode([]auth.Entry{{Identity: auth.Identity{Name: "app", TokenID: id, Read: []string{prefix}}, Hash: hash}})
			require.NoError(t, err)
			require.NoError(t, vfs.WriteAtomic(fsys, "tokens", text))
		}
		may("k")
		authority, err := auth.Open(fsys, "tokens", func(error) {})
		require.NoError(t, err)
		store := servicetest.New(kv.DefaultLimits)
		store.OnCached = func(key []byte) bool { return string(key) == "k1" }
		store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
			assert.Len(t, reads, 1, "the other one is answered")
			may("other")
			authority.Reload()
			time.Sleep(2 * time.Second)
			return nil
		}
		s := service.New(store, service.Options{Auth: authority})
		transport := &coded{codes: make(map[uint64]service.Code)}
		transport.frames = [][]frame.Op{{{Tag: 1, Kind: frame.Get, Key: []byte("k1")}, {Tag: 2, Kind: frame.Get, Key: []byte("k2")}}}
		p := &Pipeline{transport: transport, frames: newFrames(s), session: authority.SignIn(token), ctx: t.Context(), age: time.Hour, keepsToken: true}
		require.NoError(t, p.Run())
		assert.Equal(t, map[uint64]service.Code{1: service.PermissionDenied, 2: service.PermissionDenied}, transport.codes)
	})
}
