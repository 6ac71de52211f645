package main

import (
	bits "encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The commands write the token file anew. Those who may read it by its access control list still
// may, and its mode does not become that of its group.
func TestTokenFilesKeepTheirAccessControlList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.json")
	newToken(t, file, "app", "--read", "user/")
	const none = ^uint32(0)
	list := bits.LittleEndian.AppendUint32(nil, 2) // version
	for _, entry := range []struct {
		tag, permissions uint16
		id               uint32
	}{{1, 6, none}, {2, 4, 12345}, {4, 0, none}, {0x10, 4, none}, {0x20, 0, none}} { // owner, user, group, mask, others
		list = bits.LittleEndian.AppendUint16(list, entry.tag)
		list = bits.LittleEndian.AppendUint16(list, entry.permissions)
		list = bits.LittleEndian.AppendUint32(list, entry.id)
	}
	want := map[string]string{"user.owner": "the platform team", "system.posix_acl_access": string(list)}
	for name, value := range want {
		err := unix.Setxattr(file, name, []byte(value), 0)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skipf("SKIPPED: the file system of %s has no %s", file, name)
		}
		require.NoError(t, err)
	}
	for _, args := range [][]string{
		{"new", "--name", "other", "--admin"}, {"allow", "--certificate", "uri:kvd:ops", "--admin"},
		{"limit", "app", "--max-requests", "10/s"}, {"revoke", "other"},
	} {
		r := command(t, "", nil, append([]string{"token", args[0], "--file", file}, args[1:]...)...)
		require.Zero(t, r.code, "%v: %s", args, r.err)
		for name, value := range want {
			got := make([]byte, 1024)
			n, err := unix.Getxattr(file, name, got)
			if assert.NoError(t, err, "%v: %s", args, name) {
				assert.Equal(t, value, string(got[:n]), "%v: %s", args, name)
			}
		}
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o640), info.Mode(), "%v", args)
	}
}
