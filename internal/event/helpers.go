package event

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Helpers are goroutines that share the work of the one that waits for them. A panic
// of one is a panic of Wait, so that the Guard of the waiting goroutine sees it.
// The zero value has none.
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

// Wait returns when all of them have, and panics if one did.
func (h *Helpers) Wait() {
	h.group.Wait()
	if text := h.panicked.Load(); text != nil {
		panic(*text)
	}
}
