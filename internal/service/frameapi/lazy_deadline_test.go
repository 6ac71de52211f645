package frameapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A lazyDeadline is what context.WithTimeout makes, whether Done is called or not, and
// whichever was called before.
func TestPatienceIsAContextWithADeadline(t *testing.T) {
	for name, end := range map[string]struct {
		do   func(cancelParent, cancel func())
		want error
	}{
		"time runs out":    {func(_, _ func()) { time.Sleep(time.Minute) }, context.DeadlineExceeded},
		"not yet":          {func(_, _ func()) { time.Sleep(time.Minute - 1) }, nil},
		"the parent ends":  {func(parent, _ func()) { parent() }, context.Canceled},
		"it is over":       {func(_, cancel func()) { cancel() }, context.Canceled},
		"over, then later": {func(_, cancel func()) { cancel(); time.Sleep(time.Hour) }, context.Canceled},
	} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				type key struct{}
				parent, cancelParent := context.WithCancel(context.WithValue(t.Context(), key{}, 7))
				defer cancelParent()
				p := newLazyDeadline(parent, time.Now().Add(time.Minute))
				defer p.end()
				deadline, ok := p.Deadline()
				require.True(t, ok)
				require.Equal(t, time.Now().Add(time.Minute), deadline)
				child, cancelChild := context.Context(nil), func() {}
				if waits {
					child, cancelChild = context.WithCancel(p)
				}
				defer cancelChild()
				end.do(cancelParent, p.end)
				synctest.Wait()
				assert.Equal(t, end.want, p.Err(), name)
				assert.Equal(t, 7, p.Value(key{}))
				if waits {
					assert.Equal(t, end.want, child.Err(), name)
				}
				select {
				case <-p.Done():
					assert.Error(t, end.want, name)
				default:
					assert.NoError(t, end.want, name)
				}
				assert.Equal(t, end.want, p.Err(), name)
				assert.Equal(t, end.want, context.Cause(p), name)
			})
		}
	}
}

func TestPatienceEndsNoLaterThanItsParent(t *testing.T) {
	parent, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := newLazyDeadline(parent, time.Now().Add(time.Hour))
	defer p.end()
	want, _ := parent.Deadline()
	got, ok := p.Deadline()
	assert.True(t, ok)
	assert.Equal(t, want, got)
}
