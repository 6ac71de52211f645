package transport

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// caller calls a network as a client does.
type caller struct{ *Network }

type dialer = func(context.Context, string) (net.Conn, error)

// withDefaults fills in what is zero, except the timeout.
func withDefaults(o Options) Options {
	o.Conns = cmp.Or(o.Conns, 2)
	o.Window = cmp.Or(o.Window, 2)
	o.Frames = Limits{cmp.Or(o.Frames.Ops, 256), cmp.Or(o.Frames.Bytes, 64<<10)}
	o.SyncedFrames = Limits{cmp.Or(o.SyncedFrames.Ops, 512), cmp.Or(o.SyncedFrames.Bytes, 128<<10)}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// openAt returns a network that is closed when the test ends.
func openAt(t testing.TB, target string, o Options) caller {
	t.Helper()
	n, err := Open(target, withDefaults(o))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, n.Close()) })
	return caller{n}
}

// openBy is openAt for connections that dial makes.
func openBy(t testing.TB, dial dialer, o Options) caller {
	t.Helper()
	o.Dialer = dial
	return openAt(t, "memory", o)
}

// openScript is openBy for a server that serves frames as a script says.
func openScript(t testing.TB, script func(int, servertest.FrameConn) error, o Options) caller {
	t.Helper()
	return openBy(t, (&servertest.Scripted{Frames: script}).Dialer(t), o)
}

// bothTransports runs a test with raw frames and with frames in gRPC.
func bothTransports(t *testing.T, test func(t *testing.T, o Options)) {
	t.Run("raw", func(t *testing.T) { test(t, Options{}) })
	t.Run("gRPC", func(t *testing.T) { test(t, Options{GRPCOnly: true}) })
}

// inBubble has a test of a transport run in a bubble of synctest. The clock stands still there while
// a goroutine runs, so that the watchdog seals no frame to which the test still adds operations.
func inBubble(test func(t *testing.T, o Options)) func(t *testing.T, o Options) {
	return func(t *testing.T, o Options) {
		synctest.Test(t, func(t *testing.T) { test(t, o) })
	}
}

func (c caller) get(ctx context.Context, key string) ([]byte, error) {
	a, err := c.Operate(ctx, getOf(key), nil)
	return a.Value.Bytes, err
}

func getOf(key string) backend.Op {
	return backend.Op{Mutation: backend.Mutation{Kind: backend.Get, Key: []byte(key)}}
}

func putOf(key string, value []byte, d backend.Durability) backend.Op {
	return backend.Op{Mutation: backend.Mutation{Kind: backend.Put, Key: []byte(key), Value: value}, Durability: d}
}

// put is a write of the default durability.
func (c caller) put(ctx context.Context, key string, value []byte) error {
	return c.write(ctx, putOf(key, value, backend.Default))
}

// replace is a write without a request id.
func (c caller) replace(ctx context.Context, key string, value []byte) error {
	op := putOf(key, value, backend.Default)
	op.ReturnPrevious = true
	return c.write(ctx, op)
}

func (c caller) write(ctx context.Context, op backend.Op) error {
	_, err := c.Operate(ctx, op, nil)
	return err
}

// mustPut puts pairs of keys and values.
func (c caller) mustPut(t *testing.T, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		require.NoError(t, c.put(context.Background(), pairs[i], []byte(pairs[i+1])))
	}
}

// waiting counts the operations that have not been sent.
func (c caller) waiting() (n int) {
	for _, c := range c.conns {
		c.mu.Lock()
		for i := range c.mu.queues {
			q := &c.mu.queues[i]
			for _, f := range append(slices.Clone(q.sealed), q.open) {
				if f != nil {
					n += f.count - f.abandoned
				}
			}
		}
		c.mu.Unlock()
	}
	return n
}

// requireWaiting waits until all goroutines of the bubble wait, and checks how many operations have
// not been sent.
func (c caller) requireWaiting(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	require.Equal(t, want, c.waiting())
}

// transport returns what brings the frames of the first connection, nil if there is nothing.
func (c caller) transport() frameTransport {
	first := c.conns[0]
	first.mu.Lock()
	defer first.mu.Unlock()
	if first.mu.current == nil {
		return nil
	}
	return first.mu.current.transport
}

// Writes that wait for the disk have limits of their own.
func TestLimitsOfFrames(t *testing.T) {
	o := Options{Frames: Limits{1, 2}, SyncedFrames: Limits{3, 4}}
	assert.Equal(t, o.Frames, o.limits(reading))
	for durability, want := range map[kvdpb.Durability]Limits{
		kvdpb.Durability_DURABILITY_SYNC: o.SyncedFrames, kvdpb.Durability_DURABILITY_UNSPECIFIED: o.SyncedFrames,
		kvdpb.Durability_DURABILITY_BUFFERED: o.Frames, kvdpb.Durability_DURABILITY_MEMORY: o.Frames,
	} {
		op := frame.Op{Kind: frame.Put, Options: frame.Options{Durability: durability}}
		assert.Equal(t, want, o.limits(batchKeyOf(&op)), durability)
	}
}
