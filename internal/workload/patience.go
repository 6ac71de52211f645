package workload

import (
	"context"
	"time"
)

// How long a load repeats an operation that the target refuses because of overload, and how
// long it waits before each repetition.
const (
	loadPatience  = time.Minute
	firstLoadWait = 10 * time.Millisecond
	mostLoadWait  = time.Second
)

// untilAccepted does an operation of a load, and repeats it while the target refuses it
// because of overload, which means that nothing was done: on a busy machine a load takes longer,
// and does not fail.
func untilAccepted(ctx context.Context, target Target, do func() error) error {
	refuser, ok := target.(Refuser)
	began := time.Now()
	for wait := firstLoadWait; ; wait = min(2*wait, mostLoadWait) {
		err := do()
		if err == nil || !ok || !refuser.Refused(err) || time.Since(began) > loadPatience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
