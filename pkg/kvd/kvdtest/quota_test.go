package kvdtest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/internal/memlisten"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

const (
	quotaTime  = 6 * time.Second
	quotaRate  = 256 << 10 // bytes a second
	quotaValue = 96 << 10
	quotaKeys  = 4
)

// limitedServer is a server with one identity, which has a quota of bytes.
type limitedServer struct {
	t     *testing.T
	pipe  *memlisten.Listener
	token string
}

func serveWithQuota(t *testing.T) *limitedServer {
	t.Helper()
	fsys := vfs.NewMem()
	s := &limitedServer{t: t, pipe: memlisten.Listen(1 << 20)}
	var entry auth.Entry
	var id string
	s.token, id, entry.Hash = auth.NewToken()
	entry.Identity = auth.Identity{
		Name: "app", TokenID: id, Read: []string{""}, Write: []string{""},
		Quota: auth.Quota{Bytes: auth.Rate{Count: quotaRate, Per: time.Second}},
	}
	text, err := auth.Encode([]auth.Entry{entry})
	require.NoError(t, err)
	require.NoError(t, vfs.WriteAtomic(fsys, "tokens", text))
	authority, err := auth.Open(fsys, "tokens", func(err error) { assert.NoError(t, err) })
	require.NoError(t, err)
	store, err := engine.Open("data", engine.Options{FS: fsys, Partitions: 1, MemtableBytes: 8 << 20, CacheBytes: 4 << 20, SegmentBytes: 1 << 20})
	require.NoError(t, err)
	server := service.New(daemon.Store(store), service.Options{Auth: authority}, daemon.Protocols()...)
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.pipe) }()
	t.Cleanup(func() {
		assert.NoError(t, server.Shutdown(context.Background()))
		assert.NoError(t, <-served)
		assert.NoError(t, store.Close())
	})
	return s
}

func (s *limitedServer) dial(ctx context.Context, _ string) (net.Conn, error) {
	return s.pipe.DialContext(ctx)
}

func (s *limitedServer) open(opts ...kvd.Option) *kvd.Client {
	s.t.Helper()
	db, err := kvd.Open("kvdtest", append(opts, kvd.WithDialer(s.dial), kvd.WithToken(s.token), kvd.WithTimeout(time.Hour))...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, db.Close()) })
	return db
}

// unary returns a read by a unary call of gRPC.
func (s *limitedServer) unary() func(ctx context.Context, key []byte) (int, error) {
	conn, err := grpc.NewClient("passthrough:///kvdtest", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(s.dial))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, conn.Close()) })
	client := kvdpb.NewKVServiceClient(conn)
	return func(ctx context.Context, key []byte) (int, error) {
		r, err := client.Get(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.token), &kvdpb.GetRequest{Key: key})
		switch status.Code(err) {
		case codes.DeadlineExceeded:
			return 0, context.DeadlineExceeded
		case codes.ResourceExhausted:
			return 0, kvd.ErrOverloaded
		}
		return len(r.GetItem().GetValue()), err
	}
}

// limitedClient has all ways to read.
type limitedClient struct {
	*kvd.Client
	streamed *kvd.Client
	unary    func(ctx context.Context, key []byte) (int, error)
}

// Whatever calls many readers make at the same time, they get what the rate and the burst allow,
// and a part of one answer. The clock is that of the bubble.
func TestConcurrentReadersStayWithinTheirQuotaOfBytes(t *testing.T) {
	count := 64
	if testsize.Reduced() {
		count = 16
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "k%d", i%quotaKeys) }
	for name, read := range map[string]func(ctx context.Context, c *limitedClient, i int) (int, error){
		"Get": func(ctx context.Context, c *limitedClient, i int) (int, error) {
			value, err := c.Get(ctx, key(i))
			return len(value), err
		},
		"Get by gRPC": func(ctx context.Context, c *limitedClient, i int) (int, error) { return c.unary(ctx, key(i)) },
		"Get in a stream of gRPC": func(ctx context.Context, c *limitedClient, i int) (int, error) {
			value, err := c.streamed.Get(ctx, key(i))
			return len(value), err
		},
		"GetMany": func(ctx context.Context, c *limitedClient, i int) (n int, err error) {
			found, err := c.GetMany(ctx, [][]byte{key(i), key(i + 1)})
			for _, l := range found {
				n += len(l.Value)
			}
			return n, err
		},
		"Pipeline": func(ctx context.Context, c *limitedClient, i int) (n int, err error) {
			p := c.Pipeline()
			var pending [quotaKeys]*kvd.Pending[[]byte]
			for j := range pending {
				pending[j] = p.Get(key(i + j))
			}
			err = p.Do(ctx)
			for _, one := range pending {
				value, _ := one.Result() // err has the errors of all
				n += len(value)
			}
			return n, err
		},
		"PutItem": func(ctx context.Context, c *limitedClient, i int) (int, error) {
			w, err := c.PutItem(ctx, key(i), make([]byte, quotaValue), kvd.ReturnPrevious())
			if w.Previous == nil {
				return 0, err
			}
			return len(w.Previous.Value), err
		},
		"Scan": func(ctx context.Context, c *limitedClient, _ int) (n int, err error) {
			for item, err := range c.Scan(ctx, kvd.All()) {
				if err != nil {
					return n, err
				}
				n += len(item.Value)
			}
			return n, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serveWithQuota(t)
				c := &limitedClient{s.open(), s.open(kvd.WithoutRawFrames()), s.unary()}
				for i := range quotaKeys {
					require.NoError(t, c.Put(t.Context(), key(i), make([]byte, quotaValue)))
				}
				time.Sleep(time.Minute) // so that nothing is owed, and all readers begin at the same time
				ctx, cancel := context.WithTimeout(t.Context(), quotaTime)
				defer cancel()
				var received atomic.Int64
				var readers sync.WaitGroup
				for i := range count {
					readers.Go(func() {
						for ctx.Err() == nil {
							n, err := read(ctx, c, i)
							received.Add(int64(n))
							if errors.Is(err, kvd.ErrOverloaded) { // after its retries: the clock advances only if all wait
								time.Sleep(quotaTime / 50)
							} else if err != nil {
								assert.ErrorIs(t, err, context.DeadlineExceeded)
							}
						}
					})
				}
				readers.Wait()
				allowed := quotaRate * (quotaTime.Seconds() + auth.DefaultBurst.Seconds())
				assert.LessOrEqual(t, float64(received.Load()), 1.2*allowed)
				assert.Greater(t, float64(received.Load()), allowed/4)
				t.Logf("%.2f of what is allowed", float64(received.Load())/allowed)
			})
		})
	}
}
