package backup

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

func TestAStreamIsRestored(t *testing.T) {
	s := small()
	b := stream(t, s)
	m, err := VerifyStream(t.Context(), bytes.NewReader(b), Options{})
	require.NoError(t, err)
	require.EqualValues(t, 7, m.Version)
	require.Len(t, m.Files, len(s.names))
	disk := newDisk(t)
	_, err = RestoreStream(t.Context(), bytes.NewReader(b), nil, disk, "restored", Options{})
	require.NoError(t, err)
	requireStore(t, disk, "restored", s, "")
}

// A stream that was cut, or that has changed, is no backup.
func TestADamagedStreamIsRefused(t *testing.T) {
	testsize.OneGoroutine(t)
	s := small()
	b := stream(t, s)
	refused := func(b []byte, what string, i int) {
		disk := newDisk(t)
		_, err := RestoreStream(t.Context(), bytes.NewReader(b), nil, disk, "restored", Options{})
		require.ErrorIs(t, err, kv.ErrCorrupt, "%s %d", what, i)
		_, err = disk.Stat(descriptor.Path("restored"))
		require.Error(t, err)
	}
	manifest := bytes.LastIndex(b, []byte(`{"xxh64"`)) + len(`{"xxh64":"0123456789abcdef"}`) + 1
	for i := 0; i < manifest; i += 7 {
		refused(b[:i], "cut at", i)
	}
	for _, content := range s.contents {
		if i := bytes.Index(b, []byte(content)); content != "" {
			flipped := bytes.Clone(b)
			flipped[i] ^= 1
			refused(flipped, "flip at", i)
		}
	}
	refused([]byte("no tar at all"), "", 0)
}

// Names in a stream cannot lead out of the directory, and only files are taken.
func TestAStreamWithForeignNamesIsRefused(t *testing.T) {
	for _, h := range []tar.Header{
		{Name: "../escaped", Typeflag: tar.TypeReg}, {Name: "/etc/passwd", Typeflag: tar.TypeReg}, {Name: "p-0000/../../x", Typeflag: tar.TypeReg},
		{Name: "CLOCK", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, {Name: "p-0000", Typeflag: tar.TypeDir}, {Name: "RESTORING", Typeflag: tar.TypeReg},
		{Name: "STORE", Typeflag: tar.TypeReg, Size: maxStore + 1},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		require.NoError(t, w.WriteHeader(&h))
		disk := newDisk(t)
		_, err := RestoreStream(t.Context(), &b, nil, disk, "restored", Options{})
		require.ErrorIs(t, err, kv.ErrCorrupt, h.Name)
		require.Equal(t, map[string]string{"restored/" + descriptor.RestoringName: restoring}, tree(t, disk, "/"), h.Name)
	}
}
