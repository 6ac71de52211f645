package kvd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lender grants leases and knows when the current one ends. It is made with
// grant, and answer if it is to decide a renewal.
type lender struct {
	grant  time.Duration
	answer func(ctx context.Context, n int) error

	renewals atomic.Int64
	until    atomic.Pointer[time.Time]
}

func (l *lender) lend(open context.Context, maxAge time.Duration) *lease {
	l.extend()
	return newLease(open, l.grant, maxAge, l.renew)
}

func (l *lender) renew(ctx context.Context) (time.Duration, error) {
	n := int(l.renewals.Add(1))
	if l.answer != nil {
		if err := l.answer(ctx, n); err != nil {
			return 0, err
		}
	}
	if l.expired() {
		return 0, ErrVersionGone
	}
	l.extend()
	return l.grant, nil
}

func (l *lender) extend() {
	until := time.Now().Add(l.grant)
	l.until.Store(&until)
}

func (l *lender) expired() bool { return !time.Now().Before(*l.until.Load()) }

// pass lets the bubble's time pass, and what is due then be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestALeaseIsRenewedWhileItIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := lender{grant: 3 * time.Second}
		l := server.lend(t.Context(), 10*time.Minute)
		for range 100 {
			pass(server.grant)
			require.False(t, server.expired())
		}
		assert.InDelta(t, 300, server.renewals.Load(), 1, "at a third of the lease")
		l.end()
		l.end() // idempotent
		renewals := server.renewals.Load()
		pass(time.Hour)
		assert.Equal(t, renewals, server.renewals.Load())
	})
}

func TestALeaseEndsAtItsGreatestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := lender{grant: 30 * time.Second}
		begun := time.Now()
		l := server.lend(t.Context(), 10*time.Minute)
		pass(time.Hour)
		assert.True(t, l.over())
		assert.WithinRange(t, *server.until.Load(), begun.Add(10*time.Minute), begun.Add(10*time.Minute+server.grant))
	})
}

func TestALeaseEndsWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, cancel := context.WithCancel(t.Context())
		server := lender{grant: 30 * time.Second}
		server.lend(open, 10*time.Minute)
		pass(time.Minute)
		assert.Positive(t, server.renewals.Load())
		cancel()
		renewals := server.renewals.Load()
		pass(time.Hour)
		assert.Equal(t, renewals, server.renewals.Load())
	})
}

// Renewals that fail, or hang, are tried again in time, unless the server says
// that the lease has ended.
func TestALostRenewalIsTriedAgainInTime(t *testing.T) {
	hang := func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, lose := range map[string]func(context.Context, int) error{
		"at once": func(context.Context, int) error { return errors.New("lost") },
		"hanging": hang,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := lender{grant: 30 * time.Second, answer: func(ctx context.Context, n int) error {
					if n%3 != 0 { // two of three
						return lose(ctx, n)
					}
					return nil
				}}
				l := server.lend(t.Context(), time.Hour)
				defer l.end()
				for range 100 {
					pass(server.grant / 2)
					require.False(t, server.expired())
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		server := lender{grant: 30 * time.Second, answer: func(context.Context, int) error { return ErrVersionGone }}
		server.lend(t.Context(), time.Hour)
		pass(10 * time.Minute)
		assert.EqualValues(t, 1, server.renewals.Load())
	})
}

// Ending a lease ends a renewal that hangs.
func TestEndingALeaseEndsItsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		server := lender{grant: 30 * time.Second, answer: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			ended.Store(true)
			return ctx.Err()
		}}
		l := server.lend(t.Context(), time.Hour)
		pass(server.grant/3 + time.Second)
		assert.EqualValues(t, 1, server.renewals.Load())
		l.end()
		synctest.Wait()
		assert.True(t, ended.Load())
		pass(time.Hour)
		assert.EqualValues(t, 1, server.renewals.Load())
	})
}

// A server that grants next to nothing is not asked all the time.
func TestATinyLeaseIsNotASpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewals atomic.Int64
		l := newLease(t.Context(), 0, time.Hour, func(context.Context) (time.Duration, error) {
			renewals.Add(1)
			return 0, nil
		})
		pass(time.Second)
		l.end()
		assert.InDelta(t, 100, renewals.Load(), 1)
	})
}
