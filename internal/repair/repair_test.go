package repair

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A store without damage is copied whole: its tables byte by byte, its log record by record.
func TestAHealthyStoreIsCopiedWhole(t *testing.T) {
	h := newHistory(t)
	disk := h.disk.KillImage()
	r := h.judge(disk, Options{})
	requireNothingLost(t, r)
	require.Zero(t, r.Damaged())
	tables := 0
	for name, content := range h.files {
		if ext := path.Ext(name); ext == ".sst" || ext == ".val" || strings.Contains(name, "MANIFEST") {
			require.Equal(t, content, contentOf(t, disk, repairedDir+strings.TrimPrefix(name, damagedDir)), name)
			tables++
		}
	}
	require.Greater(t, tables, 3*partitions, "the store has tables, value files and manifests")
	for _, name := range []string{descriptor.Name, descriptor.ClockName} {
		require.Equal(t, h.files[path.Join(damagedDir, name)], contentOf(t, disk, path.Join(repairedDir, name)))
	}
	require.NotZero(t, r.Records)
}

// named returns the files of the store whose name has a suffix or a prefix, in order.
func (h *history) named(part string) (names []string) {
	for name := range h.files {
		if base := path.Base(name); strings.HasPrefix(base, part) || strings.HasSuffix(base, part) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	require.NotEmpty(h.t, names, part)
	return names
}

// TestEveryKindOfDamage damages every kind of file in every way that disks do. With
// KVD_DAMAGE=full it does so at many places of every file.
func TestEveryKindOfDamage(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	full := os.Getenv("KVD_DAMAGE") == "full"
	count := 0
	try := func(name string, content []byte, what string) {
		t.Helper()
		count++
		ok := t.Run(strings.TrimPrefix(name, damagedDir+"/")+" "+what, func(t *testing.T) {
			one := *h
			one.t = t
			one.repaired(func(disk *vfs.Mem) { replace(t, disk, name, content) })
		})
		require.True(t, ok)
	}
	for _, kind := range []string{".wal", ".sst", ".val", manifest.CurrentName, "MANIFEST-", descriptor.Name, descriptor.ClockName} {
		names := h.named(kind)
		for i, name := range names {
			content := h.files[name]
			try(name, nil, "removed")
			n := len(content)
			places := []int{(n*3/7 + 31*i) % n}
			if full {
				places = nil
				for at := i % 37; at < n; at += 37 {
					places = append(places, at)
				}
			}
			for _, at := range places {
				flipped := slices.Clone(content)
				flipped[at] ^= 1 << (at % 8)
				try(name, flipped, "flipped")
				try(name, slices.Clip(content[:at]), "cut")
			}
			zeroed := slices.Clone(content)
			clear(zeroed[n/2&^511 : min(n, n/2&^511+512)])
			try(name, zeroed, "zeroed")
			other := h.files[names[(i+1)%len(names)]]
			try(name, other, "replaced")
			if from := min(n, len(other)) / 2 &^ 511; from+512 <= min(n, len(other)) {
				mixed := slices.Clone(content)
				copy(mixed[from:from+512], other[from:])
				try(name, mixed, "swapped")
			}
			if !full && (i == 3 || testsize.Reduced() && i == 1) {
				break
			}
		}
	}
	t.Logf("%d damages", count)
}

// What is no part of the store, or can be made again, is no loss.
func TestDamageThatLosesNothing(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	table := h.named(".sst")[0]
	inFooter := slices.Clone(h.files[table])
	inFooter[len(inFooter)-30] ^= 1
	tail := slices.Clone(h.files[table])
	clear(tail[len(tail)-200:]) // properties and footer
	other := descriptor.Descriptor{StoreID: 1, Partitions: partitions}
	for what, damage := range map[string]func(disk *vfs.Mem){
		"another STORE": func(disk *vfs.Mem) { replace(t, disk, descriptor.Path(damagedDir), other.Encode()) },
		"LOCK and BALLAST": func(disk *vfs.Mem) {
			replace(t, disk, descriptor.LockPath(damagedDir), nil)
			replace(t, disk, descriptor.BallastPath(damagedDir), []byte("x"))
		},
		"a foreign file": func(disk *vfs.Mem) { replace(t, disk, damagedDir+"/p-0000/core", []byte("x")) },
		"STORE":          func(disk *vfs.Mem) { replace(t, disk, descriptor.Path(damagedDir), nil) },
		"CURRENT":        func(disk *vfs.Mem) { replace(t, disk, h.named(manifest.CurrentName)[1], []byte("x")) },
		"a footer":       func(disk *vfs.Mem) { replace(t, disk, table, inFooter) },
		"a tail":         func(disk *vfs.Mem) { replace(t, disk, table, tail) },
	} {
		r := h.repaired(damage)
		require.Empty(t, r.Losses, what)
	}
}

// Everything at once: both ends of each file of the log and of each table are damaged, and
// every manifest is lost.
func TestManyDamages(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	r := h.repaired(func(disk *vfs.Mem) {
		for _, name := range append(h.named(".sst"), h.named(".wal")...) {
			content := slices.Clone(h.files[name])
			content[10] ^= 1
			content[len(content)*2/3] ^= 1
			replace(t, disk, name, content)
		}
		for _, name := range h.named("MANIFEST-") {
			replace(t, disk, name, nil)
		}
		replace(t, disk, descriptor.Path(damagedDir), nil)
	})
	require.NotZero(t, r.Entries, "whole blocks are kept")
	require.NotZero(t, r.Records, "whole frames are kept")
}

// A target must be empty, and must not lie in the damaged store.
func TestTargetsThatAreRefused(t *testing.T) {
	h := newHistory(t)
	disk := h.disk.KillImage()
	replace(t, disk, "other/file", nil)
	require.NoError(t, disk.MkdirAll("other"))
	replace(t, disk, "other/file", []byte("x"))
	for _, target := range []string{damagedDir, damagedDir + "/p-0000/new", "other"} {
		_, err := Run(t.Context(), disk, damagedDir, target, Options{})
		require.ErrorIs(t, err, kv.ErrInvalidArgument, target)
	}
	_, err := Run(t.Context(), disk, "other", repairedDir, Options{})
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "no store is here")
}

// A running server holds the store.
func TestAStoreThatIsOpenIsRefused(t *testing.T) {
	h := newHistory(t)
	h.disk = h.disk.KillImage()
	h.open()
	_, err := Run(t.Context(), h.disk, damagedDir, repairedDir, Options{})
	require.ErrorIs(t, err, vfs.ErrLocked)
	h.close()
}
