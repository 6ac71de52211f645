package backup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// Files in the directory that kvd did not write are no backups, and are not removed.
func TestFilesOfOthersAreNoBackupsAndStay(t *testing.T) {
	disk := newDisk(t)
	s := small()
	d := lock(t, disk)
	foreign := []string{
		"backups/0-before.backup", "backups/zz-after.backup", "backups/.20261123T120000.005Z.backup",
		"backups/files/notes.txt", "backups/files/README", "backups/files/photo.2026",
	}
	for _, name := range foreign {
		write(t, disk, name, "not of kvd")
	}
	for range 2 {
		_, err := d.Create(t.Context(), s, noon, Options{})
		require.NoError(t, err)
		s.set("CLOCK", "another clock")
	}
	ids, err := d.IDs()
	require.NoError(t, err)
	require.Equal(t, []string{"20261123T120000.005Z", "20261123T120000.006Z"}, ids)
	m, err := d.Load("")
	require.NoError(t, err)
	require.Equal(t, ids[1], m.ID)
	p, err := d.Prune(1)
	require.NoError(t, err)
	require.Equal(t, ids[:1], p.Backups)
	require.Equal(t, 1, p.Files, "the old CLOCK")
	for _, name := range foreign {
		b, err := readFile(disk, name, 100)
		require.NoError(t, err)
		require.Equal(t, "not of kvd", string(b))
	}
}

// Backups of two stores in one directory would be pruned and restored as those of one.
func TestADirectoryIsForTheBackupsOfOneStore(t *testing.T) {
	disk := newDisk(t)
	d := lock(t, disk)
	_, err := d.Create(t.Context(), small(), noon, Options{})
	require.NoError(t, err)
	before := tree(t, disk, "backups")
	other := &otherStore{small()}
	_, err = d.Create(t.Context(), other, noon.Add(time.Hour), Options{})
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "0123456789abcdef")
	require.ErrorContains(t, err, "00000000000000ff")
	require.Equal(t, before, tree(t, disk, "backups"))
	require.Zero(t, other.sent)
}

// otherStore has an id of its own.
type otherStore struct{ *store }

// Info implements Source.
func (s *otherStore) Info() Info {
	info := s.store.Info()
	info.StoreID = 0xff
	return info
}
