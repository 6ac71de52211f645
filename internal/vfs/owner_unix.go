//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// groupMode is what the permissions of a file allow its group.
const groupMode = 0o070

// SetAccess implements File. A group that has no rights need not be kept.
func (f *osFile) SetAccess(like os.FileInfo) error {
	now, err := f.file.Stat()
	if err != nil {
		return err
	}
	is, isOK := now.Sys().(*syscall.Stat_t)
	want, wantOK := like.Sys().(*syscall.Stat_t)
	if isOK && wantOK && (is.Uid != want.Uid || is.Gid != want.Gid) {
		err := f.file.Chown(int(want.Uid), int(want.Gid))
		if err != nil && (is.Uid != want.Uid || like.Mode()&groupMode != 0) {
			return err
		}
	}
	return f.file.Chmod(like.Mode().Perm())
}

// Owner returns the user id of the owner of a file, and whether the file system has one.
func Owner(info os.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
