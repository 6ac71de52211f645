package engine

import (
	"sync"

	"github.com/kvd-db/kvd/internal/event"
)

// togetherLimit is how many of the calls run at a time. They wait for the disk, where
// concurrent syncs take about as long as one.
const togetherLimit = 16

// together calls do with 0 to n-1, several at a time, and returns after all calls have
// returned. It returns the error of the lowest number.
func together(events *event.Listener, n int, do func(i int) error) error {
	errs := make([]error, n)
	slots := make(chan struct{}, togetherLimit)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer events.Guard()
			errs[i] = do(i)
			<-slots
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
