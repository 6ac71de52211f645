package repair

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// newPlain makes a store of which all values are in value files, in the base, and nothing in the log. A second store with
// values of the same lengths has files of the same names, and the values in the same places.
func newPlain(t testing.TB, round string, keys int) *history {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	for i := range keys {
		h.put(5*i, round)
	}
	require.NoError(t, h.e.CompactAll(t.Context()))
	h.close()
	h.open() // the log goes on in another segment
	require.NoError(t, h.e.RewriteLog(t.Context()))
	h.close()
	h.closed()
	return h
}

// The checksums of a value do not cover the store: a file of another one, with the same name, may
// have other values in the same places. They are not taken for those of this store, also if the
// file is damaged besides.
func TestTheFileOfAnotherStoreIsNotUsed(t *testing.T) {
	t.Parallel()
	h := newPlain(t, "first", 60)
	other := newPlain(t, "wrong", 90)
	for _, kind := range []string{".val", ".sst"} {
		for _, name := range h.named(kind) {
			content := other.files[name]
			require.NotEmpty(t, content)
			damaged := slices.Clone(content)
			damaged[10] ^= 1
			for what, content := range map[string][]byte{"whole": content, "damaged": damaged} {
				t.Run(fmt.Sprintf("%s %s", name, what), func(t *testing.T) {
					one := *h
					one.t = t
					damage := func(disk *vfs.Mem) { replace(t, disk, name, content) }
					require.True(t, one.repaired(damage).Lost())
					r, lost := one.inPlace("", damage)
					require.Positive(t, lost)
					i := slices.IndexFunc(r.Files, func(f File) bool { return damagedDir+"/"+f.Path == name })
					require.Equal(t, Lost, r.Files[i].Action, "nothing of it is used")
				})
			}
		}
	}
}

// requireNotInvented checks that every item was written with its version.
func (h *history) requireNotInvented(items map[string]kv.Item) {
	h.t.Helper()
	for key, item := range items {
		if !slices.ContainsFunc(h.of(key), func(w written) bool { // no assertion: this runs often
			return w.kind == kv.KindPut && w.version == item.Version && w.value == string(item.Value) && w.expiry == item.Expiry
		}) {
			require.Failf(h.t, "invented", "%q = %q at %d", key, item.Value, item.Version)
		}
	}
}

// Without a manifest nothing says what a value file should be but the tables, which need more of it
// than the file of another store has.
func TestTheValuesOfAnotherStoreAreNotUsedWithoutAManifest(t *testing.T) {
	t.Parallel()
	h := newPlain(t, "first", 90)
	other := newPlain(t, "wrong", 60)
	for _, name := range h.named(".val") {
		damaged := slices.Clone(other.files[name])
		require.NotEmpty(t, damaged)
		r := h.repaired(func(disk *vfs.Mem) {
			replace(t, disk, name, damaged)
			for _, lost := range h.named("MANIFEST-") {
				replace(t, disk, lost, nil)
			}
		})
		require.True(t, slices.ContainsFunc(r.Files, func(f File) bool {
			return damagedDir+"/"+f.Path == name && f.Action == Lost && strings.Contains(f.Damage[0].Reason, "it is another file")
		}))
	}
	values := h.named(".val")
	r := h.repaired(func(disk *vfs.Mem) { // whole files: each is read, and used
		for _, lost := range h.named("MANIFEST-") {
			replace(t, disk, lost, nil)
		}
	})
	for _, f := range r.Files {
		if slices.Contains(values, damagedDir+"/"+f.Path) {
			require.Equal(t, Copied, f.Action)
		}
	}
}

// newLogged makes a store of which the log has everything.
func newLogged(t testing.TB, round string) *history {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	h.batch(0, 30, round) // some expire, so there is CLOCK
	require.NoError(t, h.e.Flush(t.Context()))
	h.batch(10, 30, round)
	h.close()
	h.closed()
	return h
}

// Of STORE, CLOCK and the log, two that agree outvote the third. If there are not three, the log is
// not used: otherwise everything in it would be invented.
func TestTheLogOfAnotherStoreIsNotUsed(t *testing.T) {
	t.Parallel()
	h := newLogged(t, "first")
	other := newLogged(t, "wrong")
	store, clock := descriptor.Path(damagedDir), descriptor.ClockPath(damagedDir)
	for what, lost := range map[string][]string{"": nil, "CLOCK": {clock}, "STORE": {store}} {
		t.Run("without "+what, func(t *testing.T) {
			one := *h
			one.t = t
			r := one.repaired(func(disk *vfs.Mem) {
				for _, name := range h.named(".wal") {
					replace(t, disk, name, other.files[name])
				}
				for _, name := range lost {
					replace(t, disk, name, nil)
				}
			})
			require.True(t, r.Lost())
			require.True(t, slices.ContainsFunc(r.Notes, func(note string) bool { return strings.Contains(note, "nothing of it was used") }), r.Notes)
		})
	}
	t.Run("STORE of another one", func(t *testing.T) {
		one := *h
		one.t = t
		r := one.repaired(func(disk *vfs.Mem) { replace(t, disk, store, other.files[store]) })
		requireNothingLost(t, r)
	})
}
