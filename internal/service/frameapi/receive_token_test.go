package frameapi

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/rawconn"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
)

// scripted is a transport that brings frames and drops the answers.
type scripted struct {
	answers
	frames [][]frame.Op
}

func (c *scripted) Receive() (*frame.Request, error) {
	if len(c.frames) == 0 {
		return nil, io.EOF
	}
	f := &frame.Request{Ops: slices.Clone(c.frames[0])}
	c.frames = c.frames[1:]
	return f, nil
}

func manyGets(n int) (ops []frame.Op) {
	for i := range n {
		ops = append(ops, frame.Op{Tag: uint64(i), Kind: frame.Get, Key: []byte("k")})
	}
	return ops
}

// partlyStore has some keys in memory.
type partlyStore struct {
	servicetest.Instant
	has func(key string) bool
}

func (s partlyStore) LookupCached(reads []*kv.Lookup) ([]*kv.Lookup, error) {
	return slices.DeleteFunc(reads, func(r *kv.Lookup) bool { return s.has(string(r.Key)) }), nil
}

// The token is kept for what does not wait, and passed on before anything else: then
// there is another worker to have it.
func TestTheTokenIsKeptForReadsFromMemory(t *testing.T) {
	all := func(string) bool { return true }
	get := manyGets(1)
	old := manyGets(1)
	old[0].AtVersion = 1
	for name, c := range map[string]struct {
		frames [][]frame.Op
		has    func(key string) bool
		prompt bool // the transport
		kept   bool // to the end
	}{
		"reads from memory":           {[][]frame.Op{get, get, manyGets(tokenOps), get}, all, true, true},
		"reads of the disk":           {[][]frame.Op{get}, func(string) bool { return false }, true, false},
		"many reads":                  {[][]frame.Op{manyGets(tokenOps + 1)}, all, true, false},
		"a transport that may wait":   {[][]frame.Op{get}, all, false, false},
		"a write":                     {[][]frame.Op{{{Kind: frame.Put, Key: []byte("k")}}}, all, true, false},
		"a write beside a read":       {[][]frame.Op{{get[0], {Tag: 1, Kind: frame.Delete, Key: []byte("k")}}}, all, true, false},
		"a read of an old version":    {[][]frame.Op{old}, all, true, false},
		"nothing":                     {[][]frame.Op{{}}, all, true, false},
		"a read that can not succeed": {[][]frame.Op{{{Kind: frame.Get}}}, all, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := service.New(partlyStore{servicetest.NewInstant(), c.has}, service.Options{})
			p := &Pipeline{transport: &scripted{frames: c.frames}, frames: newFrames(s), ctx: t.Context(), age: time.Hour, keepsToken: c.prompt}
			require.NoError(t, p.Run())
			assert.Equal(t, c.kept, p.started == 0, "to pass it on is to start a worker that has it")
		})
	}
}

// What is large is copied without the token.
func TestLargeValuesAreReadWithoutTheToken(t *testing.T) {
	store := &largeStore{LimitsOnly: servicetest.LimitsOnly{L: kv.DefaultLimits}}
	s := service.New(store, service.Options{})
	transport := &scripted{frames: [][]frame.Op{manyGets(3)}}
	p := &Pipeline{transport: transport, frames: newFrames(s), ctx: t.Context(), age: time.Hour, keepsToken: true}
	require.NoError(t, p.Run())
	assert.Equal(t, []int{1, 2}, store.found, "one with the token, then the others")
	assert.Len(t, transport.tags, 3)
}

// largeStore has values in memory of which two do not fit.
type largeStore struct {
	servicetest.LimitsOnly
	found []int
}

func (*largeStore) Now() uint64 { return 1 }

func (s *largeStore) LookupCached(reads []*kv.Lookup) ([]*kv.Lookup, error) {
	return nil, s.Lookup(context.Background(), reads)
}

func (s *largeStore) Lookup(_ context.Context, reads []*kv.Lookup) error {
	found := 0
	for _, r := range reads {
		if !r.Budget.Take(tokenBytes/2 + 1) {
			r.Err = kv.ErrBudgetSpent
			continue
		}
		r.Found, r.Value = true, make([]byte, tokenBytes/2+1)
		found++
	}
	s.found = append(s.found, found)
	return nil
}

// A client that does not take its answers holds up no later frame.
func TestTheTokenIsPassedOnBeforeAnAnswerWaits(t *testing.T) {
	conn, client := servicetest.TCPPair(t)
	s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, service.Options{})
	c := &rawTransport{frames: newFrames(s), conn: service.NewConn(s, conn), socket: rawconn.New(conn), end: func(err error) { t.Error(err) }}
	c.out.taken.L = &c.out
	p := &Pipeline{transport: c, frames: newFrames(s), err: io.EOF, token: make(chan struct{}, 1)}
	answer := func(id uint32, size int) *frame.Response {
		return &frame.Response{Compact: true, ID: id, Results: []frame.Result{{Kind: frame.Get, Value: make([]byte, size)}}}
	}
	mine := &ReceiveToken{pipeline: p, held: true}
	c.Send(answer(1, 10), mine)
	require.True(t, mine.kept(), "it did not wait")
	const large = 64 << 20 // more than the kernel takes
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.Send(answer(2, large), mine)
	}()
	<-p.token
	select {
	case <-sent:
		t.Fatal("all is sent already")
	default:
	}
	// What is sent while that one waits is left to it, or waits too.
	mate := &ReceiveToken{pipeline: p, held: true}
	c.Send(answer(3, rawUnsentBytes), mate)
	assert.True(t, mate.kept())
	last := make(chan struct{})
	go func() {
		defer close(last)
		c.Send(answer(4, 10), mate)
	}()
	<-p.token

	require.NoError(t, client.SetDeadline(testwait.Deadline()))
	for id, size := range []int{10, large, rawUnsentBytes, 10} {
		want := answer(uint32(id+1), size).AppendCompact(nil)
		got := make([]byte, len(want))
		_, err := io.ReadFull(client, got)
		require.NoError(t, err)
		require.True(t, slices.Equal(want, got), fmt.Sprint(id))
	}
	<-sent
	<-last
	again := &ReceiveToken{pipeline: p, held: true}
	c.Send(answer(5, 10), again)
	assert.True(t, again.kept())
}

// A worker that keeps the token lets others run between frames that follow each other.
func TestFramesThatFollowEachOtherLetOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	conn, client := servicetest.TCPPair(t)
	var frames []byte
	const count = 4 // as the one that yields may be the next itself, once in 61 times
	for id := range uint32(count) {
		var b frame.Builder
		for range yieldEvery { // as many as are certain to yield
			b.Add(&frame.Op{Kind: frame.Get, Key: []byte("key")})
		}
		frames = append(frames, b.Finish(frame.Header{ID: id})...)
	}
	_, err := client.Write(frames)
	require.NoError(t, err)
	s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, service.Options{})
	c := &rawTransport{frames: newFrames(s), conn: service.NewConn(s, conn), socket: rawconn.New(conn), limit: 1 << 20}
	c.in = newInput(nil, c.socket)
	receive := func() {
		f, err := c.Receive()
		require.NoError(t, err)
		Free(f)
	}
	receive()
	var ran atomic.Bool
	var other sync.WaitGroup
	other.Go(func() { ran.Store(true) })
	for range count - 1 {
		receive() // without waiting: all came at once
	}
	assert.True(t, ran.Load())
	other.Wait()
}
