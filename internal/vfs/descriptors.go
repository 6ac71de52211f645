//go:build unix

package vfs

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// descriptorPause is the first pause before an open is tried again that found no file
	// descriptor; each is twice the one before, up to descriptorPauseMax.
	descriptorPause    = time.Millisecond
	descriptorPauseMax = 100 * time.Millisecond
	// descriptorWait is how long it is tried. Guessed: connections that hold descriptors
	// come and go within seconds, and what waits here is mostly in the background.
	descriptorWait = 30 * time.Second
)

// withDescriptor calls open again, with pauses, while the process or the machine has no
// file descriptor left. That says nothing about the disk, and to make a file a moment later
// is as good.
func withDescriptor[T any](open func() (T, error)) (opened T, err error) {
	begun, pause := time.Now(), descriptorPause
	for {
		opened, err = open()
		if err == nil || !noDescriptor(err) || time.Since(begun) >= descriptorWait {
			return opened, err
		}
		time.Sleep(pause)
		pause = min(2*pause, descriptorPauseMax)
	}
}

func noDescriptor(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }
