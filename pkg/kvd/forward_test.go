package kvd

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// forwards is a service.Forwarder that pretends to perform each write, at version 7.
type forwards struct{ count atomic.Int64 }

func (f *forwards) Forward(_ context.Context, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	f.count.Add(1)
	meta := &kvdpb.ResponseMeta{Version: 7}
	answer, err := proto.Marshal(map[string]proto.Message{
		kvdpb.KVService_Put_FullMethodName:         &kvdpb.PutResponse{Meta: meta},
		kvdpb.KVService_Delete_FullMethodName:      &kvdpb.DeleteResponse{Meta: meta},
		kvdpb.KVService_DeleteRange_FullMethodName: &kvdpb.DeleteRangeResponse{Meta: meta},
		kvdpb.KVService_Write_FullMethodName:       &kvdpb.WriteResponse{Meta: meta},
		kvdpb.TxnService_Commit_FullMethodName:     &kvdpb.CommitResponse{Meta: meta},
		kvdpb.TxnService_Execute_FullMethodName:    &kvdpb.ExecuteResponse{Meta: meta},
	}[w.Method])
	return &service.ForwardedAnswer{Message: answer}, err
}

// A node that does not lead forwards the writes of a client that knows it alone, in whatever way they
// travel, and those of a client of several nodes once none of them leads.
func TestANodeForwardsForAClientThatKnowsItAlone(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		var to forwards
		var refused atomic.Int64
		store := servicetest.New(kv.DefaultLimits)
		refuse := func() error {
			refused.Add(1)
			return &kv.NotLeaderError{Leader: 2}
		}
		store.OnWrite = func(context.Context, []*kv.Write) error { return refuse() }
		store.OnApply = func(context.Context, *kv.WriteBatch) error { return refuse() }
		server := serve(t, store, service.Options{Forward: &to})
		open := func(target string, opts ...Option) *Client {
			db, err := Open(target, append([]Option{WithDialer(server.dialer)}, opts...)...)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			return db
		}
		alone := open("a:1", opts...)
		for name, write := range writesOf(alone) {
			before := to.count.Load()
			require.NoError(t, write(t.Context()), name)
			require.Equal(t, before+1, to.count.Load(), name)
		}
		before := to.count.Load()
		written, err := alone.PutItem(t.Context(), []byte("k"), nil, ReturnPrevious())
		require.NoError(t, err)
		require.Equal(t, uint64(7), written.Version)
		p := alone.Pipeline()
		for range 100 {
			p.Put([]byte("k"), nil)
		}
		require.NoError(t, p.Do(t.Context()))
		require.Equal(t, before+101, to.count.Load())

		several := open("a:1,b:1", opts...)
		for name, write := range writesOf(several) {
			before, asked := to.count.Load(), refused.Load()
			require.NoError(t, write(t.Context()), name)
			require.Equal(t, before+1, to.count.Load(), name)
			require.Equal(t, asked+3, refused.Load(), "%s: both endpoints, then the first one as it forwards", name)
		}
	})
}
