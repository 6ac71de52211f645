package vfs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMemKeepsAttributes(t *testing.T) {
	m := NewMem()
	require.NoError(t, WriteAtomic(m, "a", []byte("first")))
	want := []Attribute{{"user.note", []byte("by hand")}, {aclName, []byte("list")}}
	f, err := m.OpenReadWrite("a")
	require.NoError(t, err)
	require.NoError(t, f.SetAttributes([]Attribute{{"user.note", []byte("old")}}))
	require.NoError(t, f.SetAttributes(want))
	closeFile(t, f)
	_, err = f.Attributes()
	require.Error(t, err, "closed")
	require.Error(t, f.SetAttributes(nil), "closed")

	require.NoError(t, Replace(m, "a", []byte("second")))
	for what, disk := range map[string]*Mem{"running": m, "killed": m.KillImage(), "power cut": m.CrashImage(DropAll, nil)} {
		f, err := disk.OpenReadWrite("a")
		require.NoError(t, err, what)
		attributes, err := f.Attributes()
		require.NoError(t, err, what)
		require.ElementsMatch(t, want, attributes, what)
		require.NoError(t, f.SetAttributes(nil))
		attributes, err = f.Attributes()
		require.NoError(t, err, what)
		require.Equal(t, want[:1], attributes, "%s: the access control list alone is removed", what)
		closeFile(t, f)
	}
}
