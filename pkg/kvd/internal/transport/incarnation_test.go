package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// meetAny accepts every incarnation.
func meetAny(string) error { return nil }

// recovered returns a server of a cluster that was recovered with this id.
func recovered(t *testing.T, id uint64) *servertest.Service {
	return servertest.Serve(t, nil, service.Options{Incarnation: func() kv.Incarnation { return kv.Incarnation{Recoveries: 1, ID: id} }})
}

var transports = map[string]Options{"raw frames": {}, "frames in gRPC": {GRPCOnly: true}, "no frames": {Unframed: true}}

// Two nodes were recovered from a lost majority, each by itself. A client that has talked to one of them
// writes nothing to the other one and reads nothing of it, and says why.
func TestAClientKeepsToOneIncarnation(t *testing.T) {
	for name, o := range transports {
		t.Run(name, func(t *testing.T) {
			one, other := recovered(t, 0xa), recovered(t, 0xb)
			var mu sync.Mutex
			var away bool
			var conns []net.Conn // to the first one
			o.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
				if address != "one:1" {
					return other.Dial(ctx, address)
				}
				mu.Lock()
				defer mu.Unlock()
				if away {
					return nil, errors.New("connection refused")
				}
				conn, err := one.Dial(ctx, address)
				if err == nil {
					conns = append(conns, conn)
				}
				return conn, err
			}
			c := openAt(t, "one:1,other:1", o)
			put := func(key string) error { return c.put(t.Context(), key, []byte("v")) }
			require.NoError(t, put("k"))
			mu.Lock()
			away = true
			for _, conn := range conns {
				_ = conn.Close() // the client may have closed it
			}
			mu.Unlock()
			check := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, backend.ErrRecovered)
				var failure *backend.Failure
				require.ErrorAs(t, err, &failure)
				assert.Equal(t, kvdpb.ReasonClusterRecovered, failure.Reason)
				assert.ErrorContains(t, err, "1-000000000000000a")
				assert.ErrorContains(t, err, "1-000000000000000b")
				assert.ErrorContains(t, err, "kvd cluster status")
			}
			var err error
			for _, call := range []func() error{
				func() error { return put("lost") },
				func() error { _, err := c.get(t.Context(), "k"); return err },
				func() error { return c.Scan(t.Context(), &backend.Scan{}, func(backend.Item) bool { return true }) },
				func() error { _, err := c.Apply(t.Context(), putAll("lost"), backend.WriteOptions{}); return err },
			} {
				testwait.Until(t, func() bool { err = call(); return errors.Is(err, backend.ErrRecovered) }) // as that one is tried again in between
				check(err)
			}
			assert.Zero(t, servertest.VersionOf(t, other.Store), "nothing was written there")
		})
	}
}
