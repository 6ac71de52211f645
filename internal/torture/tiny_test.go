package torture

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A server stays within its memory budget and a quarter more, also while clients send requests that
// are small beside what they are decoded to.
func TestMemoryStaysWithinTheBudgetWithTinyElements(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	withTinyElements(t, serve, []memoryCase{
		{name: "requests of empty elements, by gRPC", attack: tinyRequests, events: 100},
		{name: "writes of empty mutations, by gRPC", attack: tinyMutations, events: 1000},
		{name: "calls of empty elements, raw frames", attack: tinyCalls, events: 50},
		{name: "frames of tiny operations", attack: tinyFrames, events: 2000},
		{name: "frames of tiny batches", attack: tinyBatches, events: 2000},
	})
}

// It does so where another process has a share of the processor. The goroutines of the server then stop
// anywhere for some milliseconds: with what they have received and not reserved yet, and in the
// collector while others go on allocating.
func TestMemoryStaysWithinTheBudgetOnABusyMachine(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	// On one processor the server would run one goroutine at a time, and stop only between two.
	t.Setenv("GOMAXPROCS", "2")
	onOneProcessor(t, func() { keepBusy(t) })
	serveBeside := func(t *testing.T, dir string, flags ...string) (s *server) {
		onOneProcessor(t, func() { s = serve(t, dir, flags...) })
		return s
	}
	withTinyElements(t, serveBeside, []memoryCase{
		{name: "calls of empty elements, raw frames", attack: tinyCalls, events: 600},
		{name: "frames of tiny operations", attack: tinyFrames, events: 6000},
	})
}

// keepBusy has a process count until the test ends, or this process.
func keepBusy(t *testing.T) {
	const loop = "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done"
	c := exec.Command("sh", "-c", loop)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		assert.NoError(t, c.Process.Kill())
		assert.Error(t, c.Wait(), "a killed process does not exit with 0")
	})
}

// withTinyElements has each attack befall a server that start starts.
func withTinyElements(t *testing.T, start func(t *testing.T, dir string, flags ...string) *server, cases []memoryCase, flags ...string) {
	const text, budget = "64MiB", 64 << 20
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, filepath.Join(t.TempDir(), "data"), append([]string{"--memory", text}, flags...)...)
			resetPeak(t, s)
			progress.Store(0)
			ctx, cancel := context.WithCancel(context.Background())
			var attack sync.WaitGroup
			attack.Go(func() { c.attack(ctx, t, s) })
			testwait.Until(t, func() bool { return progress.Load() >= c.events || t.Failed() })
			peak := peakOf(t, s)
			cancel()
			attack.Wait()
			note(t, fmt.Sprintf("%-8s %-38s peak %5d MiB", text, c.name, peak>>20))
			t.Logf("peak %d MiB", peak>>20)
			assert.LessOrEqual(t, peak, int64(budget+budget/slackShare), "%d MiB at a budget of %s", peak>>20, text)
			s.stop(t)
		})
	}
}

// tinyElements is how many empty elements make a request of some four megabytes.
const tinyElements = 2 << 20

// encoded returns a message with so many elements of a field, each with these contents.
func encoded(field, elements int, contents string) []byte {
	return bytes.Repeat(append([]byte{byte(field<<3 | 2), byte(len(contents))}, contents...), elements)
}

// asIs sends and receives messages that are encoded already.
type asIs struct{}

func (asIs) Name() string { return "proto" }

func (asIs) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (asIs) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = b
	return nil
}

// invoke makes unary calls with encoded requests by so many callers, until ctx ends. A call must
// be answered, or refused as a bad request or because there is too little memory.
func invoke(ctx context.Context, t *testing.T, s *server, callers int, next func(i int) (method string, request []byte)) {
	conns := make([]*grpc.ClientConn, 8)
	for i := range conns {
		var err error
		conns[i], err = grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(asIs{}), grpc.MaxCallRecvMsgSize(64<<20)))
		if !assert.NoError(t, err) {
			return
		}
	}
	again(ctx, t, callers, func(i int) error {
		method, request := next(i)
		var answer []byte
		err := conns[i%len(conns)].Invoke(ctx, method, &request, &answer)
		if code := status.Code(err); code == codes.InvalidArgument || code == codes.ResourceExhausted || code == codes.DeadlineExceeded {
			return nil
		}
		return err
	})
	for _, conn := range conns {
		assert.NoError(t, conn.Close())
	}
}

// tinyRequests sends requests of some megabytes that have nothing but empty elements.
func tinyRequests(ctx context.Context, t *testing.T, s *server) {
	empty := make([]byte, 2*tinyElements)
	requests := []struct {
		method  string
		request []byte
	}{
		{kvdpb.KVService_Write_FullMethodName, encoded(1, tinyElements, "")},
		{kvdpb.KVService_BatchGet_FullMethodName, encoded(1, tinyElements, "")},
		{kvdpb.TxnService_Commit_FullMethodName, encoded(2, tinyElements, "")},
		{kvdpb.TxnService_Commit_FullMethodName, encoded(3, tinyElements, "")},
		{kvdpb.TxnService_Commit_FullMethodName, encoded(4, tinyElements, "")},
		{kvdpb.TxnService_Commit_FullMethodName, encoded(7, tinyElements, "")},
		{kvdpb.TxnService_Execute_FullMethodName, encoded(1, tinyElements/2, "\x12\x00")},
		{kvdpb.TxnService_Execute_FullMethodName, encoded(2, tinyElements/2, "\x0a\x00")},
		{kvdpb.TxnService_Execute_FullMethodName, encoded(3, tinyElements/2, "\x1a\x00")},
		{kvdpb.KVService_Get_FullMethodName, append(encoded(5, 1, ""), empty...)},
	}
	invoke(ctx, t, s, 32, func(i int) (string, []byte) {
		r := requests[i%len(requests)]
		return r.method, r.request
	})
}

// tinyMutations sends writes with as many mutations as one may have, all of them empty.
func tinyMutations(ctx context.Context, t *testing.T, s *server) {
	request := encoded(1, 4096, "")
	invoke(ctx, t, s, 200, func(int) (string, []byte) { return kvdpb.KVService_Write_FullMethodName, request })
}

// rawConn opens a connection of raw frames; nil if there is none, which the test is told.
func rawConn(ctx context.Context, t *testing.T, s *server) (net.Conn, *bufio.Reader) {
	conn, err := net.Dial("tcp", s.addr)
	if !assert.NoError(t, err) {
		return nil, nil
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	hello := frame.AppendSignIn([]byte(frame.PreambleOf(frame.VersionCalls)), "")
	if _, err = conn.Write(hello); err == nil {
		_, err = io.ReadFull(in, make([]byte, len(frame.Preamble)))
	}
	if !assert.NoError(t, err) {
		return nil, nil
	}
	return conn, in
}

// rawFrames sends frames by so many connections, eight at a time on each, until ctx ends.
func rawFrames(ctx context.Context, t *testing.T, s *server, conns int, frames ...*frame.Builder) {
	opened, inputs := make([]net.Conn, conns), make([]*bufio.Reader, conns)
	for i := range conns {
		if opened[i], inputs[i] = rawConn(ctx, t, s); opened[i] == nil {
			return
		}
	}
	requests := make([][]byte, len(frames))
	for i, b := range frames {
		requests[i] = bytes.Clone(b.Finish(frame.Header{ID: uint32(i)}))
	}
	var all sync.WaitGroup
	for i, conn := range opened {
		in := inputs[i]
		window := make(chan int, 8) // how many operations each frame under way has
		all.Go(func() {
			defer close(window)
			for i := 0; ; i++ {
				select {
				case window <- frames[i%len(frames)].Count():
				case <-ctx.Done():
					return
				}
				if _, err := conn.Write(requests[i%len(frames)]); err != nil {
					return
				}
			}
		})
		all.Go(func() {
			answered := 0
			for ops := range window {
				for answered < ops {
					var r frame.Response
					if err := r.Read(in, 64<<20); err != nil {
						assert.Error(t, ctx.Err(), "the connection ended: %v", err)
						_ = conn.Close() // so that the sender ends
						break
					}
					answered += len(r.Results)
				}
				answered -= ops
				progress.Add(1)
			}
		})
	}
	all.Wait()
}

// tinyFrames sends as many operations as a frame may have, of a few bytes each.
func tinyFrames(ctx context.Context, t *testing.T, s *server) {
	var reads, writes, calls frame.Builder
	reads.Reset(frame.ReadFrame)
	writes.Reset(frame.WriteFrame)
	calls.Reset(frame.CallFrame)
	for i := range frame.MaxOps {
		reads.Add(&frame.Op{Kind: frame.Get, Key: []byte{byte(i)}})
		writes.Add(&frame.Op{Kind: frame.Put, Key: []byte{byte(i)}, Options: frame.Options{}})
		calls.Add(&frame.Op{Kind: frame.Call, Method: frame.MethodExecute})
	}
	rawFrames(ctx, t, s, 128, &reads, &writes, &calls)
}

// tinyBatches sends as many reads as a frame may have, each at a version of its own: so the server has a
// batch, a call of the store and a goroutine for each of them.
func tinyBatches(ctx context.Context, t *testing.T, s *server) {
	var reads frame.Builder
	reads.Reset(frame.ReadFrame)
	for i := range frame.MaxOps {
		reads.Add(&frame.Op{Kind: frame.Get, Key: []byte{byte(i)}, AtVersion: uint64(i + 1)})
	}
	rawFrames(ctx, t, s, 128, &reads)
}

// tinyCalls sends calls of some megabytes, in raw frames, that have nothing but empty elements.
func tinyCalls(ctx context.Context, t *testing.T, s *server) {
	var write, commit, execute frame.Builder
	for b, op := range map[*frame.Builder]frame.Op{
		&write:   {Method: frame.MethodWrite, Value: append(encoded(1, tinyElements, ""), 0x10, 1)},
		&commit:  {Method: frame.MethodCommit, Value: encoded(2, tinyElements, "")},
		&execute: {Method: frame.MethodExecute, Value: encoded(1, tinyElements, "")},
	} {
		b.Reset(frame.CallFrame)
		op.Kind = frame.Call
		b.Add(&op)
	}
	rawFrames(ctx, t, s, 8, &write, &commit, &execute)
}
