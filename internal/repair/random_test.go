package repair

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Several damages at once, of any files, with and without a backup.
func TestRandomDamages(t *testing.T) {
	t.Parallel()
	h, _ := newBackedUp(t)
	names := slices.Sorted(maps.Keys(h.files))
	seeds := uint64(60)
	if testsize.Reduced() {
		seeds = 12
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		disk := h.disk.KillImage()
		var damages []string
		for range 1 + rng.IntN(6) {
			damages = append(damages, h.damage(t, disk, names[rng.IntN(len(names))], rng))
		}
		o := Options{}
		if rng.IntN(3) == 0 {
			o.Backup = backupDir
		}
		if rng.IntN(3) == 0 {
			o.MemoryBytes, o.tableBytes = 3000, 2000
		}
		t.Run(fmt.Sprintf("seed %d: %s", seed, strings.Join(damages, ", ")), func(t *testing.T) {
			one := *h
			one.t = t
			one.judge(disk, o)
		})
	}
}

// damage damages a file in one of the ways that disks do, and says in which.
func (h *history) damage(t *testing.T, disk *vfs.Mem, name string, rng *rand.Rand) string {
	if _, err := disk.Stat(name); err != nil {
		return "none" // it was removed before
	}
	content := contentOf(t, disk, name)
	if len(content) == 0 {
		return "none"
	}
	at := rng.IntN(len(content))
	what := ""
	switch rng.IntN(5) {
	case 0:
		what, content = "removed", nil
	case 1:
		what, content = "cut", content[:at:at]
	case 2:
		what = "zeroed"
		clear(content[at&^511 : min(len(content), at&^511+512*(1+rng.IntN(4)))])
	case 3:
		what = "overwritten"
		names := slices.Sorted(maps.Keys(h.files))
		if other := h.files[names[rng.IntN(len(names))]]; at < len(other) {
			copy(content[at:min(at+1000, len(content))], other[at:])
		}
	default:
		what = "flipped"
		content[at] ^= 1 << rng.IntN(8)
	}
	replace(t, disk, name, content)
	return fmt.Sprintf("%s at %d %s", strings.TrimPrefix(name, damagedDir+"/"), at, what)
}
