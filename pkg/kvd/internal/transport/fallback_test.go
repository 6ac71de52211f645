package transport

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

// A server that stood still, and so was spoken to by gRPC, is spoken to by raw frames
// again within seconds, and no call fails.
func TestRawFramesComeBackAfterAStall(t *testing.T) {
	for name, failure := range map[string]func(net.Conn) error{
		"silent":   func(net.Conn) error { return nil },
		"hangs up": func(peer net.Conn) error { return peer.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := servertest.Serve(t, nil, service.Options{})
				var dials atomic.Int32
				db := openBy(t, func(ctx context.Context, address string) (net.Conn, error) {
					if dials.Add(1) != 2 {
						return c.Dial(ctx, address)
					}
					conn, peer := net.Pipe()
					return conn, failure(peer)
				}, Options{Conns: 1})
				db.mustPut(t, "k", "v")
				transport := db.transport()
				require.IsType(t, &rawTransport{}, transport)
				transport.close()
				synctest.Wait()
				db.mustPut(t, "k", "v")
				require.IsType(t, &streamTransport{}, db.transport(), "the server does not take raw frames now")

				begun := time.Now()
				for time.Since(begun) < 2*regainMax {
					db.mustPut(t, "k", "v")
					time.Sleep(10 * time.Millisecond)
				}
				assert.IsType(t, &rawTransport{}, db.transport())
				conn := db.conns[0]
				conn.mu.Lock()
				assert.Len(t, conn.mu.frameConns, 1, "the frameConn by gRPC was left")
				conn.mu.Unlock()
			})
		})
	}
}

// A server that does not take raw frames any more is asked for them every few seconds at
// most, one that never did every two minutes, and one that never answered less and less.
func TestHowOftenRawFramesAreAskedFor(t *testing.T) {
	const hour = time.Hour
	for name, test := range map[string]struct {
		spoke    bool
		err      error
		min, max int // of an hour
	}{
		"upgraded to another protocol": {true, errOtherProtocol, 600, 1000},
		"stands still":                 {true, errNoAnswer, 600, 1000},
		"hangs up":                     {true, errHungUp, 600, 1000},
		"never spoke them":             {false, errOtherProtocol, 30, 30},
		"never answered":               {false, errNoAnswer, 25, 50},
	} {
		t.Run(name, func(t *testing.T) {
			f := fallback{spoke: test.spoke}
			now := time.Unix(1000, 0)
			end := now.Add(hour)
			asked := 0
			for now.Before(end) {
				f.failed(test.err, now)
				asked++
				wait := f.until.Sub(now)
				if wait <= 0 {
					wait = f.wait()
				}
				require.Greater(t, wait, regainBase/2)
				now = now.Add(wait)
			}
			assert.GreaterOrEqual(t, asked, test.min)
			assert.LessOrEqual(t, asked, test.max)
		})
	}
}

// A frameConn that ends while a raw one is made in its place leaks nothing.
func TestAReplacementThatComesTooLate(t *testing.T) {
	c := servertest.Serve(t, nil, service.Options{})
	db := openBy(t, c.Dial, Options{Conns: 1, GRPCOnly: true})
	db.mustPut(t, "k", "v")
	conn := db.conns[0]
	conn.mu.Lock()
	fc := conn.mu.current
	conn.mu.Unlock()
	fc.transport.close()
	<-fc.done
	near, far := net.Pipe()
	conn.replace(fc, newRawTransport(near, near, false))
	_, err := far.Read(make([]byte, 1))
	require.Error(t, err, "it was closed")
	require.NoError(t, errors.Join(far.Close()))
	db.mustPut(t, "k", "v")
}
