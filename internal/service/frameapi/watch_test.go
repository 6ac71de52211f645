package frameapi

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// timed is a transport that brings what a test wants, and notes when it was told to go
// and when it was killed.
type timed struct {
	begun  time.Time
	frames chan *frame.Request // closed: the client ends in order
	killed chan struct{}

	mu    sync.Mutex
	told  []time.Duration
	ended time.Duration
	tags  int
}

func (c *timed) Receive() (*frame.Request, error) {
	select {
	case f, ok := <-c.frames:
		if !ok {
			return nil, io.EOF
		}
		return f, nil
	case <-c.killed:
		return nil, context.Canceled
	}
}

func (c *timed) Send(r *frame.Response, t *ReceiveToken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.GoingAway {
		c.told = append(c.told, time.Since(c.begun))
	}
	c.tags += len(r.Results)
}

func (c *timed) Kill(error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = time.Since(c.begun)
	close(c.killed)
}

// gatedReads reads until it is told to go on.
type gatedReads struct {
	servicetest.Instant
	goOn chan struct{}
}

func (s gatedReads) Lookup(context.Context, []*kv.Lookup) error {
	<-s.goOn
	return nil
}

// watched runs a pipeline in a time of its own, and returns how it was ended. The
// lifetimes are 100 h, 4 h without a frame, a minute to leave and a second in a
// shutdown.
func watched(t *testing.T, use func(c *timed, s *service.Server, goOn chan<- struct{})) (c *timed) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		life := service.Lifetimes{CloseWait: time.Minute, ShutdownWait: time.Second}
		goOn := make(chan struct{})
		s := service.New(gatedReads{servicetest.NewInstant(), goOn}, service.Options{Lifetimes: life})
		c = &timed{begun: time.Now(), frames: make(chan *frame.Request), killed: make(chan struct{})}
		p := &Pipeline{transport: c, frames: newFrames(s), ctx: t.Context(), age: 100 * time.Hour, idle: 4 * time.Hour}
		ran := make(chan error, 1)
		go func() { ran <- p.Run() }()
		use(c, s, goOn)
		err := <-ran
		if c.ended > 0 {
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, err)
		}
	})
	return c
}

func oneGet() *frame.Request { return &frame.Request{Ops: manyGets(1)} }

// One on which nothing comes is told to go, and is ended if it stays.
func TestAnIdlePipelineEnds(t *testing.T) {
	c := watched(t, func(*timed, *service.Server, chan<- struct{}) {})
	assert.Equal(t, []time.Duration{5 * time.Hour}, c.told)
	assert.Equal(t, 5*time.Hour+time.Minute, c.ended)

	c = watched(t, func(c *timed, _ *service.Server, goOn chan<- struct{}) {
		time.Sleep(3*time.Hour + time.Minute)
		c.frames <- oneGet()
		goOn <- struct{}{}
	})
	assert.Equal(t, []time.Duration{8 * time.Hour}, c.told, "four looks after the one that saw it")
	assert.Equal(t, 1, c.tags)
}

// One that is used lasts until it is old.
func TestAnOldPipelineEnds(t *testing.T) {
	c := watched(t, func(c *timed, _ *service.Server, goOn chan<- struct{}) {
		for range 200 {
			time.Sleep(time.Hour)
			select {
			case c.frames <- oneGet():
				goOn <- struct{}{}
			case <-c.killed:
				return
			}
		}
	})
	require.Len(t, c.told, 1)
	assert.InDelta(t, 100, c.told[0].Hours(), 10)
	assert.Equal(t, c.told[0]+time.Minute, c.ended)
}

// What is under way may end, however long that takes.
func TestAPipelineIsNotEndedWhileItServes(t *testing.T) {
	c := watched(t, func(c *timed, _ *service.Server, goOn chan<- struct{}) {
		c.frames <- oneGet()
		time.Sleep(150*time.Hour + time.Second/2)
		goOn <- struct{}{}
	})
	require.Len(t, c.told, 1)
	assert.Equal(t, 1, c.tags)
	assert.InDelta(t, 150, c.ended.Hours(), 0.001)
}

// A shutdown has a shorter grace period, and refuses what still arrives.
func TestAPipelineEndsWithTheServer(t *testing.T) {
	c := watched(t, func(c *timed, s *service.Server, _ chan<- struct{}) {
		time.Sleep(time.Minute)
		require.NoError(t, s.Shutdown(context.Background()))
		synctest.Wait()
		c.frames <- oneGet() // is refused, else it would wait for ever
	})
	assert.Equal(t, []time.Duration{time.Minute}, c.told)
	assert.Equal(t, time.Minute+time.Second, c.ended)
	assert.Equal(t, 1, c.tags)

	c = watched(t, func(_ *timed, s *service.Server, _ chan<- struct{}) {
		time.Sleep(5*time.Hour + 10*time.Second)
		require.NoError(t, s.Shutdown(context.Background()))
	})
	assert.Equal(t, []time.Duration{5 * time.Hour}, c.told, "it knows already")
	assert.Equal(t, 5*time.Hour+11*time.Second, c.ended)

	c = watched(t, func(c *timed, s *service.Server, _ chan<- struct{}) {
		require.NoError(t, s.Shutdown(context.Background()))
		close(c.frames)
	})
	assert.Zero(t, c.ended)
}

// One whose client leaves is watched no longer: the bubble would not end otherwise.
func TestAPipelineThatEndsIsNotWatched(t *testing.T) {
	for _, after := range []time.Duration{0, time.Hour, 5 * time.Hour, 5*time.Hour + time.Minute - 1} {
		c := watched(t, func(c *timed, _ *service.Server, _ chan<- struct{}) {
			time.Sleep(after)
			close(c.frames)
		})
		assert.Zero(t, c.ended)
	}
}
