//go:build !linux

package vfs

import (
	"errors"
	"os"
)

// Evict is for Linux only.
func Evict(name string) error {
	return &os.PathError{Op: "evict", Path: name, Err: errors.ErrUnsupported}
}
