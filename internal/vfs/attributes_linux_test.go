package vfs

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// userMayRead is an access control list with which one user may read a file of mode 0640, and the
// group of the file may not.
func userMayRead(user uint32) []byte {
	const none = ^uint32(0)
	list := binary.LittleEndian.AppendUint32(nil, 2) // version
	for _, entry := range []struct {
		tag, permissions uint16
		id               uint32
	}{{1, 6, none}, {2, 4, user}, {4, 0, none}, {0x10, 4, none}, {0x20, 0, none}} { // owner, user, group, mask, others
		list = binary.LittleEndian.AppendUint16(list, entry.tag)
		list = binary.LittleEndian.AppendUint16(list, entry.permissions)
		list = binary.LittleEndian.AppendUint32(list, entry.id)
	}
	return list
}

// setAttribute skips the test if the file system has no such attribute.
func setAttribute(t *testing.T, name, attribute string, value []byte) {
	t.Helper()
	err := unix.Setxattr(name, attribute, value, 0)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("SKIPPED: the file system of %s has no %s", name, attribute)
	}
	require.NoError(t, err)
}

func attribute(t *testing.T, name, attribute string) string {
	t.Helper()
	value := make([]byte, maxAttributes)
	n, err := unix.Getxattr(name, attribute, value)
	if errors.Is(err, unix.ENODATA) {
		return absent
	}
	require.NoError(t, err)
	return string(value[:n])
}

// Without the list, the permissions 0640 would be those of the group.
func TestReplaceKeepsAccessControlListAndAttributes(t *testing.T) {
	for name, value := range map[string]string{"user.note": "by hand", "user.empty": "", aclName: string(userMayRead(12345))} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tokens")
			require.NoError(t, Replace(OS, file, []byte("first")))
			setAttribute(t, file, name, []byte(value))
			want, _, _ := access(t, OS, file)
			require.NoError(t, Replace(OS, file, []byte("second")))
			require.Equal(t, "second", read(t, OS, file))
			require.Equal(t, value, attribute(t, file, name))
			mode, _, _ := access(t, OS, file)
			require.Equal(t, want, mode)
		})
	}
}

// A directory gives its new files an access control list if it has a default one.
func TestReplaceTakesNoAccessControlListFromTheDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	require.NoError(t, Replace(OS, file, []byte("first")))
	require.NoError(t, os.Chmod(file, 0o640))
	setAttribute(t, dir, "system.posix_acl_default", userMayRead(12345))
	require.NoError(t, Replace(OS, file, []byte("second")))
	require.Equal(t, absent, attribute(t, file, aclName))
	mode, _, _ := access(t, OS, file)
	require.Equal(t, os.FileMode(0o640), mode)
}
