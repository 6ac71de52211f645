package event

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Helpers are goroutines that share the work of the goroutine that waits for them. If
// one panics, Wait panics, so that the Guard of the waiting goroutine sees it. The zero
// value is ready.
type Helpers struct {
	group    sync.WaitGroup
	panicked atomic.Pointer[string]
}

// Go runs f on a goroutine.
func (h *Helpers) Go(f func()) {
	h.group.Go(func() {
		defer func() {
			if cause := recover(); cause != nil {
				text := fmt.Sprintf("%v, in a helper:\n%s", cause, debug.Stack())
				h.panicked.CompareAndSwap(nil, &text)
			}
		}()
		f()
	})
}

// Wait waits for all goroutines, and panics if one of them did.
func (h *Helpers) Wait() {
	h.group.Wait()
	if text := h.panicked.Load(); text != nil {
		panic(*text)
	}
}
