package memlisten_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/pkg/kvd/internal/memlisten"
)

// Many goroutines of a bubble dial at once. Without turns the race detector ends this test with
// SIGSEGV.
func TestManyDialInABubble(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			l := memlisten.Listen(64)
			var accepted, dialing sync.WaitGroup
			accepted.Go(func() {
				for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
					assert.NoError(t, conn.Close())
				}
			})
			for range 64 {
				dialing.Go(func() {
					for range 10 {
						conn, err := l.Dial()
						if assert.NoError(t, err) {
							assert.NoError(t, conn.Close())
						}
					}
				})
			}
			dialing.Wait()
			assert.NoError(t, l.Close())
			accepted.Wait()
		})
	}
}

// A goroutine that waits for its turn gives up when its context ends.
func TestAContextEndsWhileOthersDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memlisten.Listen(64)
		first := make(chan error)
		go func() {
			_, err := l.Dial()
			first <- err
		}()
		synctest.Wait() // the first waits to be accepted
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error)
		go func() {
			_, err := l.DialContext(ctx)
			second <- err
		}()
		synctest.Wait()
		cancel()
		assert.ErrorIs(t, <-second, context.Canceled)
		assert.NoError(t, l.Close())
		assert.Error(t, <-first)
	})
}
