package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// frameLog is a script that shows the frames that come and answers them when told.
type frameLog struct {
	frames chan *kvdpb.PipelineRequest
	answer chan *kvdpb.PipelineResponse
}

func newFrameLog() *frameLog {
	return &frameLog{make(chan *kvdpb.PipelineRequest, 100), make(chan *kvdpb.PipelineResponse, 100)}
}

func (l *frameLog) script(_ int, conn servertest.FrameConn) error {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			r, err := conn.Recv()
			if err != nil {
				return
			}
			l.frames <- r
		}
	}()
	for {
		select {
		case r := <-l.answer:
			if err := conn.Send(r); err != nil {
				return err
			}
		case <-gone:
			return nil
		}
	}
}

func keysOf(r *kvdpb.PipelineRequest) (keys []string) {
	for _, op := range r.Ops {
		keys = append(keys, string(op.GetGet().GetKey())+string(op.GetPut().GetItem().GetKey())+string(op.GetDelete().GetKey()))
	}
	return keys
}

// A frame's answers may come in several, in any order: each caller has its own as
// soon as it is there.
func TestAnswersInSeveralFrames(t *testing.T) {
	bothTransports(t, inBubble(func(t *testing.T, o Options) {
		log := newFrameLog()
		o.Conns, o.Window = 1, 1
		db := openScript(t, log.script, o)
		ctx := context.Background()
		type got struct {
			key string
			err error
		}
		answers := make(chan got, 10)
		get := func(ctx context.Context, key string) {
			value, err := db.get(ctx, key)
			if err == nil && string(value) != "v" {
				err = fmt.Errorf("value %q", value)
			}
			answers <- got{key, err}
		}
		go get(ctx, "first")
		first := <-log.frames
		for i, key := range []string{"a", "b", "c", "d"} {
			if i%2 == 1 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
			}
			go get(ctx, key)
			db.requireWaiting(t, i+1)
		}
		log.answer <- servertest.AnswerAll(first)
		require.Equal(t, got{"first", nil}, <-answers)
		second := <-log.frames
		require.Equal(t, []string{"a", "b", "c", "d"}, keysOf(second))
		all := servertest.AnswerAll(second).Results
		for _, i := range []int{2, 0, 3, 1} {
			assert.Empty(t, answers)
			log.answer <- &kvdpb.PipelineResponse{Results: all[i : i+1]}
			require.Equal(t, got{string("abcd"[i]), nil}, <-answers)
		}
	}))
}

// An operation that waits because the window is full is removed when its caller gives up. A frame
// without other operations is not sent.
func TestCancelledOperationsAreNotSent(t *testing.T) {
	bothTransports(t, inBubble(func(t *testing.T, o Options) {
		log := newFrameLog()
		o.Conns, o.Window = 1, 1
		db := openScript(t, log.script, o)
		put := func(ctx context.Context, key string) chan error {
			answer := make(chan error, 1)
			before := db.waiting()
			go func() { answer <- db.put(ctx, key, nil) }()
			if key != "first" {
				db.requireWaiting(t, before+1)
			}
			return answer
		}
		cancelled := func(answer chan error) {
			err := <-answer
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, backend.ErrUncertain)
		}
		ctx, cancel := context.WithCancel(context.Background())
		one := put(context.Background(), "first")
		first := <-log.frames
		gone, stays := put(ctx, "gone"), put(context.Background(), "stays")
		cancel()
		cancelled(gone)
		log.answer <- servertest.AnswerAll(first)
		require.NoError(t, <-one)
		second := <-log.frames
		require.Len(t, second.Ops, 2, "the place stays, the operation does not")
		assert.Equal(t, second.Ops[0].Tag%frame.MaxOps, uint64(0))
		skipped := servertest.AnswerAll(second)
		skipped.Results[0].Result = nil

		ctx, cancel = context.WithCancel(context.Background())
		gone = put(ctx, "gone too")
		cancel()
		cancelled(gone)
		assert.Zero(t, db.waiting())
		log.answer <- skipped
		require.NoError(t, <-stays)
		assert.Empty(t, log.frames)
	}))
}

// Operations share a frame only if they wait for the same things.
func TestFramesAreOfOneBatchKey(t *testing.T) {
	log := newFrameLog()
	db := openScript(t, log.script, Options{Conns: 1})
	ctx := context.Background()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { _, err := db.get(ctx, "get"); assert.NoError(t, err) })
		for level := backend.Default; level <= backend.Sync; level++ {
			all.Go(func() { assert.NoError(t, db.write(ctx, putOf(fmt.Sprint(level), nil, level))) })
		}
		all.Go(func() {
			op := putOf("if", nil, backend.Sync)
			op.Condition = &backend.Condition{Kind: backend.MustNotExist}
			assert.NoError(t, db.write(ctx, op))
		})
	}
	for answered := 0; answered < 12; {
		r := <-log.frames
		keys := keysOf(r)
		for _, key := range keys {
			assert.Equal(t, keys[0], key)
		}
		answered += len(keys)
		log.answer <- servertest.AnswerAll(r)
	}
	all.Wait()
}

// Writes leave room among the frames that a server serves at a time, so that a read
// does not wait for them.
func TestReadsDoNotWaitForWrites(t *testing.T) {
	log := newFrameLog()
	one := Limits{Ops: 1}
	db := openScript(t, log.script, Options{Conns: 1, Frames: one, SyncedFrames: one, Window: 8})
	ctx := context.Background()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { assert.NoError(t, db.put(ctx, "k", nil)) })
	}
	var writes []*kvdpb.PipelineRequest
	for range maxWrites {
		writes = append(writes, <-log.frames)
	}
	all.Go(func() { _, err := db.get(ctx, "get"); assert.NoError(t, err) })
	read := <-log.frames
	assert.Equal(t, []string{"get"}, keysOf(read))
	log.answer <- servertest.AnswerAll(read)
	for answered := range 10 {
		if answered >= len(writes) {
			writes = append(writes, <-log.frames)
		}
		log.answer <- servertest.AnswerAll(writes[answered])
	}
	all.Wait()
}

// A second frame of synced writes leaves beside the first one once it is half full; of
// writes that wait for no sync, at once.
func TestSyncedWritesHaveOneFrameUnderWay(t *testing.T) {
	synctest.Test(t, syncedWritesHaveOneFrameUnderWay)
}

func syncedWritesHaveOneFrameUnderWay(t *testing.T) {
	log := newFrameLog()
	six := Limits{Ops: 6}
	db := openScript(t, log.script, Options{Conns: 1, Frames: six, SyncedFrames: six})
	ctx := context.Background()
	var all sync.WaitGroup
	put := func(key string, d backend.Durability) {
		all.Go(func() { assert.NoError(t, db.write(ctx, putOf(key, nil, d))) })
	}
	for _, durability := range []backend.Durability{backend.Sync, backend.Default} {
		put("first", durability)
		first := <-log.frames
		for i := range 2 {
			put("second", durability)
			db.requireWaiting(t, i+1)
		}
		put("early", backend.Buffered)
		early := <-log.frames
		require.Equal(t, []string{"early"}, keysOf(early))
		put("beside it", backend.Buffered)
		besideIt := <-log.frames
		require.Equal(t, []string{"beside it"}, keysOf(besideIt))
		db.requireWaiting(t, 2)
		put("second", durability)
		second := <-log.frames
		require.Equal(t, []string{"second", "second", "second"}, keysOf(second))
		for _, r := range []*kvdpb.PipelineRequest{first, early, besideIt, second} {
			log.answer <- servertest.AnswerAll(r)
		}
		all.Wait()
	}
}

// A frame does not wait for more operations if it has half of the operations or of the bytes, or
// is closed to further operations.
func TestLargeSyncedWritesDoNotGather(t *testing.T) {
	synctest.Test(t, largeSyncedWritesDoNotGather)
}

func largeSyncedWritesDoNotGather(t *testing.T) {
	log := newFrameLog()
	small := Limits{Bytes: 1000}
	db := openScript(t, log.script, Options{Conns: 1, Frames: small, SyncedFrames: small, Window: 4})
	ctx := context.Background()
	var all sync.WaitGroup
	put := func(key string, bytes int) {
		all.Go(func() { assert.NoError(t, db.write(ctx, putOf(key, make([]byte, bytes), backend.Sync))) })
	}
	put("first", 10)
	frames := []*kvdpb.PipelineRequest{<-log.frames}
	put("half", 500)
	frames = append(frames, <-log.frames)
	put("small", 100)
	db.requireWaiting(t, 1)
	put("no room for it", 950)
	for range 2 {
		frames = append(frames, <-log.frames)
	}
	for i, key := range []string{"first", "half", "small", "no room for it"} {
		require.Equal(t, []string{key}, keysOf(frames[i]))
		log.answer <- servertest.AnswerAll(frames[i])
	}
	all.Wait()
}

// A frame of synced writes waits until the callers of the last one have resumed, and may have
// written again. Other frames do not wait for them.
func TestSyncedWritesWaitForThoseAnswered(t *testing.T) {
	synctest.Test(t, syncedWritesWaitForThoseAnswered)
}

func syncedWritesWaitForThoseAnswered(t *testing.T) {
	log := newFrameLog()
	db := openScript(t, log.script, Options{Conns: 1})
	ctx := context.Background()
	var all sync.WaitGroup
	put := func(key string, d backend.Durability) {
		all.Go(func() { assert.NoError(t, db.write(ctx, putOf(key, nil, d))) })
	}
	put("first", backend.Sync)
	first := <-log.frames
	put("second", backend.Sync)
	db.requireWaiting(t, 1)
	c := db.conns[0]
	c.mu.Lock()
	op := frame.Op{Kind: frame.Put, Key: []byte("slow"), Options: frame.Options{Durability: kvdpb.Durability_DURABILITY_SYNC}}
	slow := c.addLocked(batchKeyOf(&op), &op, unbounded)
	slow.markBlocking()
	c.mu.Unlock()

	log.answer <- servertest.AnswerAll(first)
	second := <-log.frames
	require.Equal(t, []string{"second", "slow"}, keysOf(second))
	log.answer <- servertest.AnswerAll(second)
	<-slow.progress
	put("third", backend.Sync)
	db.requireWaiting(t, 1)
	put("buffered", backend.Buffered)
	buffered := <-log.frames
	require.Equal(t, []string{"buffered"}, keysOf(buffered))
	log.answer <- servertest.AnswerAll(buffered)
	db.requireWaiting(t, 1)

	slow.release()
	third := <-log.frames
	require.Equal(t, []string{"third"}, keysOf(third))
	log.answer <- servertest.AnswerAll(third)
	all.Wait()
}

// Reads wait in the same way, while there are few of them, and not for those under way.
func TestReadsWaitForThoseAnswered(t *testing.T) {
	synctest.Test(t, readsWaitForThoseAnswered)
}

func readsWaitForThoseAnswered(t *testing.T) {
	for _, few := range []bool{true, false} {
		log := newFrameLog()
		limits := Limits{Ops: 4} // a quarter of it is one
		if few {
			limits.Ops = 64
		}
		db := openScript(t, log.script, Options{Conns: 1, Frames: limits})
		ctx := context.Background()
		var all sync.WaitGroup
		get := func(key string) {
			all.Go(func() {
				_, err := db.get(ctx, key)
				assert.NoError(t, err)
			})
		}
		get("first")
		first := <-log.frames
		c := db.conns[0]
		c.mu.Lock()
		op := frame.Op{Kind: frame.Get, Key: []byte("slow")}
		slow := c.addLocked(batchKeyOf(&op), &op, unbounded)
		slow.markBlocking()
		c.mu.Unlock()
		get("second")
		second := <-log.frames
		require.Equal(t, []string{"slow", "second"}, keysOf(second))
		log.answer <- servertest.AnswerAll(first)
		log.answer <- servertest.AnswerAll(second)
		<-slow.progress
		get("third")
		if few {
			db.requireWaiting(t, 1)
			c.mu.Lock()
			gathers := c.mu.current.nextLocked() == nil
			c.mu.current.writes++
			mixed := c.mu.current.nextLocked() != nil
			c.mu.current.writes--
			c.mu.Unlock()
			require.True(t, gathers)
			require.True(t, mixed, "not beside writes")
			slow.release()
		}
		third := <-log.frames
		require.Equal(t, []string{"third"}, keysOf(third))
		log.answer <- servertest.AnswerAll(third)
		if !few {
			slow.release()
		}
		all.Wait()
	}
}

// A caller that waits for other operations before it reads its answer delays no frame: two such
// callers could otherwise wait for each other.
func TestSyncedWritesDoNotWaitForPipelines(t *testing.T) {
	log := newFrameLog()
	db := openScript(t, log.script, Options{Conns: 1})
	ctx := context.Background()
	var all sync.WaitGroup
	both := []*backend.Operation{{Op: getOf("read")}, {Op: putOf("written", nil, backend.Sync)}}
	all.Go(func() {
		db.OperateAll(ctx, both)
		assert.NoError(t, errors.Join(both[0].Err, both[1].Err))
	})
	frames := map[string]*kvdpb.PipelineRequest{}
	for range 2 {
		f := <-log.frames
		frames[keysOf(f)[0]] = f
	}
	log.answer <- servertest.AnswerAll(frames["written"])
	all.Go(func() { assert.NoError(t, db.write(ctx, putOf("other", nil, backend.Sync))) })
	other := <-log.frames
	require.Equal(t, []string{"other"}, keysOf(other))
	log.answer <- servertest.AnswerAll(other)
	log.answer <- servertest.AnswerAll(frames["read"])
	all.Wait()
}

// The client's timeout ends those calls that have no deadline of their own, sent or
// not, and no others.
func TestTheTimeoutIsOnlyOfThoseWithoutADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, log := openPiped(t, Options{Conns: 1, Timeout: time.Second, Window: 1})
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		took := make(chan time.Duration, 4)
		put := func(ctx context.Context, undone bool) {
			err := db.put(ctx, "k", nil)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, !undone, errors.Is(err, backend.ErrUncertain))
			took <- time.Since(begun)
		}
		go put(context.Background(), false)
		<-log.frames
		go put(context.Background(), true)
		go put(ctx, true)
		assert.InDelta(t, 1.05, (<-took).Seconds(), 0.06)
		assert.InDelta(t, 1.05, (<-took).Seconds(), 0.06)
		assert.InDelta(t, 3, (<-took).Seconds(), 0.01)
		assert.Zero(t, db.waiting())
	})
}

// openPiped opens a network to a server of raw frames over a pipe, which works in a bubble.
func openPiped(t *testing.T, o Options) (caller, *frameLog) {
	log := newFrameLog()
	server := &servertest.Scripted{Frames: log.script}
	var all sync.WaitGroup
	t.Cleanup(all.Wait) // after the network was closed
	return openBy(t, func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		all.Go(func() { server.ServeRaw(theirs) })
		return ours, nil
	}, o), log
}

// A server that is slow, and answers whether it is there, keeps its frameConn.
func TestASlowServerKeepsItsFrameConn(t *testing.T) {
	release := make(chan struct{})
	store := servicetest.New(kv.DefaultLimits)
	server := servertest.Serve(t, store, service.Options{})
	db := openBy(t, server.Dial, Options{Conns: 1})
	db.mustPut(t, "k", "v")
	store.OnWrite = func(context.Context, []*kv.Write) error { <-release; return nil }
	written := make(chan error, 1)
	go func() { written <- db.put(t.Context(), "k", nil) }()
	c := db.conns[0]
	var fc *frameConn
	testwait.Until(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		fc = c.mu.current
		return len(fc.frames) == 1
	})
	c.mu.Lock()
	received := fc.received
	c.mu.Unlock()
	fc.ask(received)
	c.mu.Lock()
	assert.False(t, fc.silent)
	c.mu.Unlock()
	close(release)
	require.NoError(t, <-written)
}

// A frameConn on which nothing comes for longer than what is under way may take is
// replaced; a write that it had is sent again.
func TestASilentFrameConnIsReplaced(t *testing.T) {
	for timeout, silence := range map[time.Duration]time.Duration{
		30 * time.Second: 30 * time.Second,
		0:                maxSilence,
	} {
		synctest.Test(t, func(t *testing.T) {
			db, log := openPiped(t, Options{Conns: 1, Timeout: timeout})
			answer := make(chan error, 1)
			begun := time.Now()
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), silence+10*time.Second)
				defer cancel()
				if timeout == 0 {
					ctx = context.Background()
				} else {
					_, err := db.get(context.Background(), "short") // ends before
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
				answer <- db.put(ctx, "k", nil)
			}()
			if timeout != 0 {
				<-log.frames // the read; the write comes when it has ended
				log.answer <- servertest.AnswerAll(<-log.frames)
				require.NoError(t, <-answer)
				return
			}
			<-log.frames
			log.answer <- servertest.AnswerAll(<-log.frames)
			require.NoError(t, <-answer)
			assert.InDelta(t, silence.Seconds(), time.Since(begun).Seconds(), 1)
		})
	}
}

// While a server is away it is not dialled by every call, but soon enough.
func TestReconnecting(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 50 * time.Millisecond, 2: 80 * time.Millisecond, 3: 128 * time.Millisecond, 20: time.Second} {
		for range 100 {
			assert.InDelta(t, want, reconnectAfter(failures), 0.2001*float64(want))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		dials := 0
		db := openBy(t, func(context.Context, string) (net.Conn, error) {
			dials++
			return nil, refused
		}, Options{Conns: 1, Timeout: 5 * time.Second})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { assert.ErrorIs(t, db.put(context.Background(), "k", nil), backend.ErrUnavailable) })
		}
		all.Wait()
		assert.Less(t, dials, 12)
		assert.Greater(t, dials, 2)
	})
}

// A connection that a server refuses has done nothing.
func TestARefusal(t *testing.T) {
	refuse := func(reason string, code codes.Code) *fault {
		return faultOfStream(&refusal{&frame.Response{Refused: true, Results: []frame.Result{{Code: int32(code), Reason: reason, RetryAfterMillis: 7}}}})
	}
	f := refuse(kvdpb.ReasonOverloaded, codes.ResourceExhausted)
	assert.Equal(t, fault{err: backend.ErrOverloaded, reason: "OVERLOADED", retryAfter: 7 * time.Millisecond, undone: true, transient: true}, *f)
	f = refuse(kvdpb.ReasonShuttingDown, codes.Unavailable)
	assert.False(t, f.undone, "there were frames before it, maybe")
	assert.True(t, f.transient)
	assert.False(t, refuse(kvdpb.ReasonInvalidRequest, codes.InvalidArgument).transient)
}

// tornConn fails the write that comes when it is armed, of which it lets all but
// some bytes through.
type tornConn struct {
	net.Conn
	armed   *atomic.Bool
	missing int
}

var errTorn = errors.New("torn")

func (c *tornConn) Write(p []byte) (int, error) {
	if !c.armed.CompareAndSwap(true, false) {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:len(p)-c.missing])
	return n, errors.Join(err, errTorn)
}

// A frame of which not all was written did nothing, so that even a write without a
// request id is tried again; one that was written whole is in doubt.
func TestATornFrameDidNothing(t *testing.T) {
	for missing, uncertain := range map[int]bool{0: true, 1: false, 30: false} {
		t.Run(fmt.Sprint(missing), func(t *testing.T) {
			store := servicetest.New(kv.DefaultLimits)
			c := servertest.Serve(t, store, service.Options{})
			var armed atomic.Bool
			db := openBy(t, func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := c.Dial(ctx, address)
				return &tornConn{conn, &armed, missing}, err
			}, Options{Conns: 1})
			db.mustPut(t, "first", "v")
			if uncertain { // the answer must not come before the write has failed
				failed := make(chan struct{})
				defer close(failed)
				store.OnWrite = func(context.Context, []*kv.Write) error {
					<-failed
					return nil
				}
			}
			armed.Store(true)
			err := db.replace(context.Background(), "k", []byte("a value of more than thirty bytes"))
			if uncertain {
				require.ErrorIs(t, err, backend.ErrUncertain)
				return
			}
			require.NoError(t, err)
			assert.EqualValues(t, 2, servertest.VersionOf(t, store))
		})
	}
}

// lateConn is a connection whose Write returns late, after the callers that were answered
// meanwhile have had time to call again. It checks whether its bytes stayed the same.
type lateConn struct {
	net.Conn
	changed *atomic.Int64
}

func (c lateConn) Write(p []byte) (int, error) {
	before := string(p)
	n, err := c.Conn.Write(p)
	for range 300 {
		runtime.Gosched()
	}
	if string(p) != before {
		c.changed.Add(1)
	}
	return n, err
}

// All answers of a frame may arrive, and its callers return, before the write of the frame has
// returned. Until then its memory is not reused.
func TestAFrameKeepsItsMemoryWhileItIsWritten(t *testing.T) {
	var changed atomic.Int64
	var dialer net.Dialer
	address := (&servertest.Map{}).Listen(t)
	db := openBy(t, func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		return lateConn{conn, &changed}, err
	}, Options{Conns: 1})
	var callers sync.WaitGroup
	for caller := range 6 {
		callers.Go(func() {
			key := fmt.Sprint(caller)
			for i := range 300 {
				assert.NoError(t, db.put(context.Background(), key, fmt.Append(nil, i)))
				value, err := db.get(context.Background(), key)
				assert.NoError(t, err)
				assert.Equal(t, fmt.Sprint(i), string(value))
			}
		})
	}
	callers.Wait()
	assert.Zero(t, changed.Load())
}

// A frame takes no more than its caps, however much is queued, and the order in
// which calls queued is kept.
func TestFramesKeepTheirCaps(t *testing.T) { bothTransports(t, inBubble(framesKeepTheirCaps)) }

func framesKeepTheirCaps(t *testing.T, o Options) {
	var mu sync.Mutex
	var batches [][]string
	blocked, gate := make(chan struct{}, 100), make(chan struct{})
	store := servicetest.New(kv.DefaultLimits)
	store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
		var keys []string
		for _, w := range writes {
			keys = append(keys, string(w.Op.Key))
		}
		mu.Lock()
		batches = append(batches, keys)
		mu.Unlock()
		blocked <- struct{}{}
		<-gate
		return nil
	}
	o.Conns, o.Window, o.Frames = 1, 1, Limits{4, 1000}
	o.SyncedFrames = o.Frames
	db := openBy(t, servertest.Serve(t, store, service.Options{}).Dial, o)
	var all sync.WaitGroup
	put := func(key string, bytes int) {
		all.Go(func() { assert.NoError(t, db.put(context.Background(), key, make([]byte, bytes))) })
	}
	put("first", 1)
	<-blocked // the window is full: the others queue
	for i, bytes := range []int{1, 1, 1, 1, 1, 500, 500, 500, 900} {
		put(fmt.Sprint(i), bytes)
		db.requireWaiting(t, i+1)
	}
	close(gate)
	all.Wait()
	assert.Equal(t, [][]string{{"first"}, {"0", "1", "2", "3"}, {"4", "5"}, {"6"}, {"7"}, {"8"}}, batches)
}

// A stream that is going away takes no further frame, gets the answers that it
// still owes, and is then closed by the client.
func TestAStreamThatIsGoingAway(t *testing.T) { bothTransports(t, aStreamThatIsGoingAway) }

func aStreamThatIsGoingAway(t *testing.T, o Options) {
	closed := make(chan struct{})
	var first *kvdpb.PipelineRequest
	told, moved := make(chan struct{}), make(chan struct{})
	db := openScript(t, func(opened int, conn servertest.FrameConn) error {
		if opened > 1 {
			return servertest.ServeFrames(conn)
		}
		var err error
		if first, err = conn.Recv(); err != nil {
			return err
		}
		if err := conn.Send(&kvdpb.PipelineResponse{GoingAway: true}); err != nil {
			return err
		}
		close(told)
		<-moved
		if err := conn.Send(servertest.AnswerAll(first)); err != nil {
			return err
		}
		_, err = conn.Recv()
		assert.ErrorContains(t, err, "EOF")
		close(closed)
		return nil
	}, o)
	move := sync.OnceFunc(func() { close(moved) })
	t.Cleanup(move) // or a failure below would leave the server waiting
	slow := make(chan error, 1)
	go func() { slow <- db.put(context.Background(), "slow", nil) }()
	<-told
	c := db.conns[0]
	testwait.Until(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.mu.current == nil && !c.mu.opening && !c.waitingLocked()
	})
	for range 3 {
		require.NoError(t, db.put(context.Background(), "next", nil))
	}
	move()
	require.NoError(t, <-slow)
	<-closed
}
