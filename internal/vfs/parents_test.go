package vfs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParents(t *testing.T) {
	for dir, want := range map[string][]string{
		"/a/b/c/": {"/a/b", "/a", "/"}, "a//b": {"a", "."}, "a": {"."}, ".": nil, "/": nil, "": nil,
	} {
		require.Equal(t, want, Parents(dir), dir)
	}
}

func TestSyncParentsKeepsNewDirectories(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("a/b/c"))
	require.Equal(t, absent, read(t, m.CrashImage(DropAll, nil), "a/b/c"))
	require.NoError(t, SyncParents(m, "a/b/c"))
	requireList(t, m.CrashImage(DropAll, nil), "a/b", "c")
	require.ErrorContains(t, SyncParents(m, "a/none/c"), "no such file")
}
