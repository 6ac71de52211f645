package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// loneCaller is a client with one connection, of a server that answers when told. Callers may receive
// on the connection, as it is a socket.
type loneCaller struct {
	caller
	log    *frameLog
	mu     sync.Mutex
	all    []net.Conn // of the server
	closed bool
}

func newLoneCaller(t *testing.T, o Options) *loneCaller {
	l := &loneCaller{log: newFrameLog()}
	server := &servertest.Scripted{Frames: l.log.script}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.all = append(l.all, conn)
			l.mu.Unlock()
			serving.Go(func() { server.ServeRaw(conn) })
		}
	})
	t.Cleanup(func() { // after the client was closed
		assert.NoError(t, listener.Close())
		serving.Wait()
	})
	o.Conns = 1
	network, err := Open(listener.Addr().String(), withDefaults(o))
	require.NoError(t, err)
	l.caller = caller{network}
	t.Cleanup(func() {
		if !l.closed {
			assert.NoError(t, l.Close())
		}
	})
	return l
}

// accepted returns the connections that the server has accepted.
func (l *loneCaller) accepted() []net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// holder returns which goroutine holds the token.
func (l *loneCaller) holder() tokenHolder {
	c := l.conns[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.current == nil {
		return heldByReceiver
	}
	return c.mu.current.token.holder
}

// got is how a get ended.
type got struct {
	value []byte
	err   error
}

// start starts a get, and returns its frame and how it ends.
func (l *loneCaller) start(t *testing.T, ctx context.Context, key string) (*kvdpb.PipelineRequest, chan got) {
	t.Helper()
	ended := make(chan got, 1)
	go func() {
		value, err := l.get(ctx, key)
		ended <- got{value, err}
	}()
	request, ok := testwait.Receive(t, l.log.frames)
	require.True(t, ok)
	require.Equal(t, []string{key}, keysOf(request))
	return request, ended
}

// requireAnswered requires that a get ends with the value that the script answers.
func requireAnswered(t *testing.T, ended chan got) {
	t.Helper()
	g, ok := testwait.Receive(t, ended)
	require.True(t, ok)
	require.NoError(t, g.err)
	require.Equal(t, "v", string(g.value))
}

// free returns once the token is free. On a busy machine the watchdog may take it before it is used.
func (l *loneCaller) free(t *testing.T) {
	t.Helper()
	testwait.Until(t, func() bool {
		request, ended := l.start(t, context.Background(), "before")
		l.log.answer <- servertest.AnswerAll(request)
		requireAnswered(t, ended)
		return l.holder() == free
	})
}

// receiving starts a get whose caller holds the token.
func (l *loneCaller) receiving(t *testing.T, key string, within func() (context.Context, context.CancelFunc)) (*kvdpb.PipelineRequest, chan got, context.CancelFunc) {
	t.Helper()
	for {
		l.free(t)
		ctx, cancel := within()
		request, ended := l.start(t, ctx, key)
		if l.holder() == heldByCaller {
			return request, ended, cancel
		}
		l.log.answer <- servertest.AnswerAll(request)
		<-ended
		cancel()
	}
}

func forever() (context.Context, context.CancelFunc) { return context.Background(), func() {} }

func cancellable() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

// A lone caller receives its answer itself, and the connection is free for the next one.
func TestALoneCallerReceivesItsAnswer(t *testing.T) {
	for name, within := range map[string]func() (context.Context, context.CancelFunc){"forever": forever, "cancellable": cancellable} {
		t.Run(name, func(t *testing.T) {
			l := newLoneCaller(t, Options{})
			request, ended, cancel := l.receiving(t, "k", within)
			defer cancel()
			l.log.answer <- servertest.AnswerAll(request)
			requireAnswered(t, ended)
			l.free(t)
		})
	}
}

// A caller that receives gives up when its context ends. The client drops the answer, which comes later.
// The next caller gets its own answer.
func TestALoneCallerGivesUp(t *testing.T) {
	l := newLoneCaller(t, Options{})
	request, ended, cancel := l.receiving(t, "late", cancellable)
	cancel()
	g, _ := testwait.Receive(t, ended)
	assert.ErrorIs(t, g.err, context.Canceled)
	assert.Equal(t, heldByReceiver, l.holder())
	l.log.answer <- servertest.AnswerAll(request)
	l.free(t)
}

// Likewise when the client's timeout ends the call.
func TestALoneCallerTimesOut(t *testing.T) {
	testwait.Doubling(t, 100*time.Millisecond, func(d time.Duration) bool {
		l := newLoneCaller(t, Options{Timeout: d})
		ended := make(chan got, 1)
		for range 10 * loneFrames {
			go func() {
				value, err := l.get(context.Background(), "k")
				ended <- got{value, err}
			}()
			request, _ := testwait.Receive(t, l.log.frames)
			if l.holder() == heldByCaller {
				g, _ := testwait.Receive(t, ended)
				assert.ErrorIs(t, g.err, context.DeadlineExceeded)
				assert.Equal(t, heldByReceiver, l.holder())
				return true
			}
			l.log.answer <- servertest.AnswerAll(request)
			if g, _ := testwait.Receive(t, ended); g.err != nil {
				return false // on a slow machine
			}
		}
		return false
	})
}

// An interrupt may come after its caller has returned. It ends neither the receive of the receiver nor
// that of another caller.
func TestALateInterruptHarmsNone(t *testing.T) {
	l := newLoneCaller(t, Options{})
	l.free(t)
	interrupt := l.transport().(callerTransport).interrupt
	for range 20 {
		interrupt()
		request, ended := l.start(t, context.Background(), "k")
		interrupt()
		l.log.answer <- servertest.AnswerAll(request)
		requireAnswered(t, ended)
		interrupt()
	}
	assert.IsType(t, &rawTransport{}, l.transport(), "the connection goes on")
	assert.Len(t, l.accepted(), 1)
	l.free(t)
}

// An answer that has not come as a whole is received by the receiver.
func TestALargeAnswerOfALoneCaller(t *testing.T) {
	l := newLoneCaller(t, Options{})
	request, ended, _ := l.receiving(t, "k", forever)
	large := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	answer := servertest.AnswerAll(request)
	answer.Results[0].GetGet().Item.Value = large
	l.log.answer <- answer
	g, _ := testwait.Receive(t, ended)
	require.NoError(t, g.err)
	assert.True(t, bytes.Equal(large, g.value))
	l.free(t)
}

// A caller that receives also delivers what comes for others. When it has its own answer, the receiver
// receives for them.
func TestOthersJoinALoneCaller(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("its answer comes first: %v", first), func(t *testing.T) {
			l := newLoneCaller(t, Options{})
			own, ended, _ := l.receiving(t, "own", forever)
			other, joined := l.start(t, context.Background(), "other")
			if first {
				l.log.answer <- servertest.AnswerAll(own)
				requireAnswered(t, ended)
				assert.Equal(t, heldByReceiver, l.holder())
				l.log.answer <- servertest.AnswerAll(other)
				requireAnswered(t, joined)
			} else {
				l.log.answer <- servertest.AnswerAll(other)
				requireAnswered(t, joined)
				assert.Equal(t, heldByCaller, l.holder())
				l.log.answer <- servertest.AnswerAll(own)
				requireAnswered(t, ended)
			}
			l.free(t)
		})
	}
}

// What the server does while the token is free is noticed without a call.
func TestTheEndOfAnIdleConnectionIsNoticed(t *testing.T) {
	for name, end := range map[string]func(*loneCaller){
		"closed":     func(l *loneCaller) { _ = l.accepted()[0].Close() }, // which its server closes again
		"going away": func(l *loneCaller) { l.log.answer <- &kvdpb.PipelineResponse{GoingAway: true} },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoneCaller(t, Options{})
			l.free(t)
			end(l)
			testwait.Until(t, func() bool { return l.transport() == nil })
			l.free(t) // on another connection
			assert.Len(t, l.accepted(), 2)
		})
	}
}

// GetMany has a frame of its own, which a lone caller receives likewise.
func TestALoneGetManyReceivesItsAnswers(t *testing.T) {
	l := newLoneCaller(t, Options{})
	testwait.Until(t, func() bool {
		l.free(t)
		ended := make(chan error, 1)
		var values [3]string
		go func() {
			ended <- l.GetMany(context.Background(), [][]byte{{'a'}, {'b'}, {'c'}}, backend.ReadVersion{}, nil, func(i int, v backend.Value, found bool) {
				values[i] = fmt.Sprintf("%s %v", v.Bytes, found)
			})
		}()
		request, _ := testwait.Receive(t, l.log.frames)
		require.Equal(t, []string{"a", "b", "c"}, keysOf(request))
		holder := l.holder()
		l.log.answer <- servertest.AnswerAll(request)
		err, _ := testwait.Receive(t, ended)
		require.NoError(t, err)
		require.Equal(t, [...]string{"v true", "v true", "v true"}, values)
		return holder == heldByCaller
	})
}

// The answers of a frame that its caller does not send are received, although the token was free.
func TestASentFrameTakesTheTokenBack(t *testing.T) {
	l := newLoneCaller(t, Options{Timeout: time.Minute})
	l.free(t)
	both := []*backend.Operation{{Op: getOf("a")}, {Op: getOf("b")}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.OperateAll(context.Background(), both)
	}()
	for got := 0; got < len(both); {
		request, ok := testwait.Receive(t, l.log.frames)
		require.True(t, ok)
		assert.Equal(t, heldByReceiver, l.holder())
		got += len(request.Ops)
		l.log.answer <- servertest.AnswerAll(request)
	}
	_, _ = testwait.Receive(t, ended)
	for _, o := range both {
		assert.NoError(t, o.Err)
		assert.Equal(t, "v", string(o.Answer.Value.Bytes))
	}
}

// A caller that receives is told that its connection has broken, and tries again on another one.
func TestAConnectionBreaksUnderALoneCaller(t *testing.T) {
	l := newLoneCaller(t, Options{})
	_, ended, _ := l.receiving(t, "k", forever)
	require.NoError(t, l.accepted()[0].Close())
	again, _ := testwait.Receive(t, l.log.frames)
	l.log.answer <- servertest.AnswerAll(again)
	requireAnswered(t, ended)
	l.free(t)
}

// A client is closed while a caller receives.
func TestCloseUnderALoneCaller(t *testing.T) {
	l := newLoneCaller(t, Options{})
	_, ended, _ := l.receiving(t, "k", forever)
	l.closed = true
	require.NoError(t, l.Close())
	g, _ := testwait.Receive(t, ended)
	assert.Error(t, g.err)
}

// One to three callers, whose contexts end at any time, take turns. Each gets its own answers.
func TestCallersComeAndGo(t *testing.T) {
	db := openAt(t, new(servertest.Map).Listen(t), Options{Conns: 1})
	const keys = 50
	for i := range keys {
		db.mustPut(t, strconv.Itoa(i), "value "+strconv.Itoa(i))
	}
	var most sync.WaitGroup
	defer most.Wait()
	for c := range 3 {
		most.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 1))
			for range 20 {
				for range random.IntN(200) * (3 - c) {
					key := strconv.Itoa(random.IntN(keys))
					ctx, cancel := context.WithCancel(context.Background())
					switch random.IntN(8) {
					case 0:
						cancel()
					case 1:
						go cancel()
					case 2:
						time.AfterFunc(time.Duration(random.IntN(100))*time.Microsecond, cancel)
					}
					value, err := db.get(ctx, key)
					cancel()
					if !errors.Is(err, context.Canceled) && (err != nil || string(value) != "value "+key) {
						t.Errorf("get %s: %q, %v", key, value, err)
						return
					}
				}
				time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond) // others may be alone
			}
		})
	}
}

// Lone synced writes and calls are received by their callers, too.
func TestALoneWriterReceivesItsAnswer(t *testing.T) {
	l := newLoneCaller(t, Options{})
	l.free(t)
	testwait.Until(t, func() bool {
		ended := make(chan error, 1)
		go func() { ended <- l.write(context.Background(), putOf("k", []byte("v"), backend.Sync)) }()
		request, _ := testwait.Receive(t, l.log.frames)
		holder := l.holder()
		l.log.answer <- servertest.AnswerAll(request)
		err, _ := testwait.Receive(t, ended)
		require.NoError(t, err)
		return holder == heldByCaller
	})
}

// A write is not sent on a connection that has ended while the token was free: it would be in doubt.
func TestALoneWriterLeavesAConnectionThatHasEnded(t *testing.T) {
	for name, write := range map[string]func(*loneCaller, context.Context) error{
		"alone": func(l *loneCaller, ctx context.Context) error { return l.replace(ctx, "k", []byte("v")) },
		"in a pipeline": func(l *loneCaller, ctx context.Context) error {
			op := putOf("k", []byte("v"), backend.Default)
			op.ReturnPrevious = true
			o := &backend.Operation{Op: op}
			l.OperateAll(ctx, []*backend.Operation{o})
			return o.Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoneCaller(t, Options{})
			testwait.Until(t, func() bool {
				l.free(t)
				l.transport().(*rawTransport).interrupt() // too late for its caller
				all := l.accepted()
				require.NoError(t, all[len(all)-1].Close())
				time.Sleep(time.Millisecond) // the end arrives
				unseen := l.holder() == free
				ended := make(chan error, 1)
				go func() { ended <- write(l, context.Background()) }()
				select {
				case request := <-l.log.frames:
					l.log.answer <- servertest.AnswerAll(request)
					err, _ := testwait.Receive(t, ended)
					require.NoError(t, err)
				case err := <-ended:
					require.NoError(t, err, "without an answer")
				}
				return unseen // not by the receiver, on a busy machine
			})
		})
	}
}
