package manifest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// life is what the crash and fault tests interrupt: a partition is made, filled,
// opened again and compacted to nothing. life calls acked after each step.
func life(fsys vfs.FS, acked func(*home)) error {
	h, err := openHome(fsys)
	if err != nil {
		return err
	}
	acked(h)
	for _, step := range []func() error{
		func() error { return h.flush("a", "m", 1, 10) },
		func() error { return h.flush("c", "z", 11, 20) },
		func() error { return h.Install(Edit{Kind: Flush, FlushedSeq: 25}) },
		func() error { return h.compact(CompactDeltas, 0, 2, "a", "z") },
		func() error {
			handed := h.handed
			if h, err = openHome(fsys); err == nil {
				h.handed = handed
			}
			return err
		},
		func() error { return h.flush("b", "y", 26, 30) },
		func() error { return h.compact(CompactBase, 1, 2, "a", "z") },
		func() error { return h.compact(CompactBase, 0, 1, "a", "f", "g", "z") },
		func() error { return h.flush("d", "e", 31, 33) },
		func() error { return h.compact(CompactBase, 0, 1) },
	} {
		if err := step(); err != nil {
			return err
		}
		acked(h)
	}
	return nil
}

// compact replaces deltas [from, to), with the base if it is of that kind, by
// tables that span the given pairs of keys.
func (h *home) compact(kind EditKind, from, to int, spans ...string) error {
	ref := h.Acquire()
	defer ref.Release()
	read := slices.Concat(ref.Deltas[from:to]...)
	if kind == CompactBase {
		read = append(read, ref.Base...)
	}
	e := Edit{Kind: kind, Removed: nums(read)}
	first, last := read.SeqBounds()
	for i := 0; i < len(spans); i += 2 {
		t, err := h.write(spans[i], spans[i+1], first, last)
		if err != nil {
			return err
		}
		e.Added = append(e.Added, t)
	}
	return h.Install(e)
}

func (h *home) contents() string {
	ref := h.Acquire()
	defer ref.Release()
	return contents(ref.Version)
}

// crash is the disk that a power cut leaves, and what was known before it.
type crash struct {
	image  *vfs.Mem
	policy vfs.CrashPolicy
	step   vfs.Step
	acked  int        // steps of the life that were done
	handed kv.FileNum // the largest number handed out
}

// requireRecovered opens the disk and fails unless it holds one of the allowed
// contents, whole, and nothing else.
func requireRecovered(t *testing.T, c *crash, allowed []string) *home {
	t.Helper()
	h, err := openHome(c.image)
	require.NoError(t, err, "crash before %+v, %s", c.step, c.policy)
	ref := h.Acquire()
	defer ref.Release()
	require.Contains(t, allowed, contents(ref.Version), "crash before %+v, %s", c.step, c.policy)
	requireTables(t, c.image, ref.Version)

	want := []string{CurrentName, ManifestName(ref.Num)}
	for meta := range ref.Tables() {
		want = append(want, TableName(meta.Num))
	}
	names, err := c.image.List(testDir)
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return name == LostFoundName })
	require.ElementsMatch(t, want, names)
	return h
}

// goOn uses a recovered partition: a flush, and a second Open.
func goOn(h *home) error {
	ref := h.Acquire()
	defer ref.Release()
	return h.flush("a", "z", ref.FlushedSeq+1, ref.FlushedSeq+5)
}

func TestEveryCrashPoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var history []string
	var crashes []crash
	var handed kv.FileNum
	fsys := newMem(t)
	fsys.SetHook(func(step vfs.Step) {
		for _, policy := range vfs.CrashPolicies {
			crashes = append(crashes, crash{fsys.CrashImage(policy, rng), policy, step, len(history), handed})
		}
	})
	require.NoError(t, life(fsys, func(h *home) {
		history = append(history, h.contents())
		if len(h.handed) > 0 {
			handed = slices.Max(h.handed)
		}
	}))
	fsys.SetHook(nil)

	again, every := 0, 5 // a fifth of the recoveries is interrupted too
	if testsize.Reduced() {
		every = 30
	}
	for i := range crashes {
		c := &crashes[i]
		allowed := history[max(c.acked-1, 0):min(c.acked+1, len(history))]
		var secondCrashes []crash
		if i%every == 0 {
			c.image.SetHook(func(step vfs.Step) {
				policy := vfs.CrashPolicies[rng.IntN(len(vfs.CrashPolicies))]
				secondCrashes = append(secondCrashes, crash{c.image.CrashImage(policy, rng), policy, step, c.acked, c.handed})
			})
		}
		h := requireRecovered(t, c, allowed)
		before := h.contents()
		require.NoError(t, goOn(h))
		require.Greater(t, slices.Min(h.handed), c.handed, "a number was handed out twice")
		c.image.SetHook(nil)

		after := h.contents()
		require.Equal(t, after, requireRecovered(t, c, []string{after}).contents())
		for j := range secondCrashes {
			requireRecovered(t, &secondCrashes[j], []string{before, after})
			again++
		}
	}
	t.Logf("%d crashes, %d crashes of their recovery", len(crashes), again)
	require.Greater(t, len(crashes), 400)
}

func TestKillAtEveryPoint(t *testing.T) {
	var history []string
	var crashes []crash
	fsys := newMem(t)
	fsys.SetHook(func(step vfs.Step) {
		crashes = append(crashes, crash{image: fsys.KillImage(), step: step, acked: len(history)})
	})
	require.NoError(t, life(fsys, func(h *home) { history = append(history, h.contents()) }))
	for i := range crashes {
		c := &crashes[i]
		h := requireRecovered(t, c, history[max(c.acked-1, 0):min(c.acked+1, len(history))])
		// A following power cut must not undo what the new process has read: either it was
		// synced, or nothing depends on it.
		require.NoError(t, goOn(h))
		after := h.contents()
		c.image = c.image.CrashImage(vfs.DropAll, nil)
		require.Equal(t, after, requireRecovered(t, c, []string{after}).contents())
	}
}
