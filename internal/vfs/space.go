package vfs

import (
	"errors"
	"syscall"
)

// IsNoSpace reports whether an operation failed because the disk, or the quota of
// this user, is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsReadOnly reports whether an operation failed because the file system is
// mounted read-only, or has made itself read-only.
func IsReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// CannotWrite reports whether an operation failed because the file system takes no
// more bytes at present, although what is there can be read.
func CannotWrite(err error) bool { return IsNoSpace(err) || IsReadOnly(err) }
