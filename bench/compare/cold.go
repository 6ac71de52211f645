package main

import (
	"errors"
	"time"
)

// coldEvery is the time between two emptyings of the page cache: within it, few reads
// find what an earlier one has brought in.
const coldEvery = 100 * time.Millisecond

// whileCold calls use, and drops all files below a directory from the page cache before
// and again and again meanwhile.
func whileCold(dir string, use func() error) error {
	if err := forgetFiles(dir); err != nil {
		return err
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ticker := time.NewTicker(coldEvery)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				ended <- nil
				return
			case <-ticker.C:
				if err := forgetFiles(dir); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	err := use()
	close(stop)
	return errors.Join(err, <-ended)
}
