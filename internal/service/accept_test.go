package service

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// limitsOnly is a store for tests that reach nothing but its limits.
type limitsOnly struct{ Store }

func (limitsOnly) Limits() kv.Limits { return kv.DefaultLimits }

// failing is a listener whose Accept returns errors.
type failing struct {
	net.Listener
	left  []error
	times []time.Duration // between calls of Accept
	last  time.Time
}

func (l *failing) Accept() (net.Conn, error) {
	l.times, l.last = append(l.times, time.Since(l.last)), time.Now()
	err := l.left[0]
	l.left = l.left[1:]
	return nil, err
}

func (l *failing) Close() error { return nil }

// passing is an error such as too many open files.
type passing struct{ error }

func (passing) Temporary() bool { return true }

// After errors that pass the listener is tried again, with longer and longer pauses; any
// other error ends it.
func TestAcceptingGoesOnAfterErrorsThatPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &failing{last: time.Now()}
		for range 10 {
			l.left = append(l.left, passing{net.ErrClosed})
		}
		l.left = append(l.left, net.ErrClosed)
		s := New(limitsOnly{}, Options{})
		require.ErrorIs(t, s.Serve(l), net.ErrClosed)
		const ms = time.Millisecond
		assert.Equal(t, []time.Duration{0, 5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, 1000 * ms, 1000 * ms}, l.times)
	})
}

// A shutdown ends the pause, and a server that was shut down serves nothing.
func TestAShutdownEndsTheWaitForTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &failing{last: time.Now(), left: []error{passing{net.ErrClosed}, net.ErrClosed}}
		s := New(limitsOnly{}, Options{})
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		synctest.Wait()
		require.NoError(t, s.Shutdown(t.Context()))
		require.NoError(t, <-served)
		assert.Zero(t, l.times[1])
		require.NoError(t, s.Serve(l))
		assert.Len(t, l.times, 2)
	})
}
