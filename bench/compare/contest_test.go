package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/disk"
	"github.com/kvd-db/kvd/internal/workload"
)

func testContestOptions(t *testing.T, engines ...string) *contestOptions {
	return &contestOptions{engines: engines, rounds: 2, slot: 50 * time.Millisecond, keys: 2000, memory: minMemoryMiB, dir: t.TempDir()}
}

// hold runs a contest in a directory of its own and returns the slots, which must have
// been reported as lines.
func hold(t *testing.T, o *contestOptions, c *contest) []slot {
	t.Helper()
	require.NoError(t, o.validate())
	require.NoError(t, c.validate())
	o.out = filepath.Join(t.TempDir(), "slots.jsonl")
	var slots []slot
	var stderr bytes.Buffer
	require.NoError(t, withArena(t.Context(), o, &stderr, func(a *arena) (err error) {
		slots, err = holdAll(t.Context(), a, []*contest{c})
		return err
	}), stderr.String())
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left, "temporary files stay")

	text, err := os.ReadFile(o.out)
	require.NoError(t, err)
	var reported []slot
	for line := range strings.Lines(string(text)) {
		var s slot
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		reported = append(reported, s)
	}
	require.Len(t, reported, len(slots))
	for i := range slots {
		assert.Equal(t, slots[i].Run.Summary.Ops, reported[i].Run.Summary.Ops)
	}
	return slots
}

func TestEnginesTakeTurns(t *testing.T) {
	o := testContestOptions(t, ours4, "goleveldb", "bbolt")
	slots := hold(t, o, putContest(o, 64, []int{1, 8}))
	var turns []string
	for _, s := range slots {
		turns = append(turns, s.Engine)
		assert.NotZero(t, s.Run.Summary.Put.Count, s.Cell)
		assert.Equal(t, int64(s.Run.Summary.Put.Count)*(16+64), s.Run.UserBytes)
		assert.Positive(t, s.Run.Written.Calls)
		assert.Positive(t, s.Run.DiskBytes)
	}
	round := []string{ours4, "goleveldb", "bbolt", "goleveldb", "bbolt", ours4}
	assert.Equal(t, slices.Concat(round, round), turns, "no engine always follows the same one")
}

func TestMixesReadWhatTheyWrote(t *testing.T) {
	all := slices.Concat(engineNames(), namesOf(apart), namesOf(native))
	o := testContestOptions(t, all...)
	o.rounds = 1
	// Engines that found and deleted nothing, as in the few operations that a busy machine does in
	// a slot, run again with longer slots.
	for ; len(o.engines) > 0; o.slot *= 2 {
		slots := hold(t, o, mixContest(o, workload.Mixes[3], 300, 4))
		require.Len(t, slots, len(o.engines))
		o.engines = nil
		for _, s := range slots {
			if s.Run.Summary.Delete.Count == 0 || s.Run.Summary.Found.Get == 0 {
				o.engines = append(o.engines, s.Engine)
				t.Logf("%s: %d gets and %d deletes in %v: again", s.Engine, s.Run.Summary.Get.Count, s.Run.Summary.Delete.Count, o.slot)
			}
		}
	}
}

func TestAFreshStoreForEverySlot(t *testing.T) {
	for _, singly := range []bool{false, true} {
		o := testContestOptions(t, ours4, "pebble")
		slots := hold(t, o, loadContest(o, 40, singly))
		require.Len(t, slots, 4)
		for _, s := range slots {
			assert.Equal(t, uint64(2000), s.Run.Summary.Ops)
			assert.Positive(t, s.Run.Summary.OpsPerSecond)
			assert.Equal(t, int64(2000*(16+40)), s.Run.UserBytes)
			assert.Positive(t, s.Run.SettleTime)
		}
	}
}

func TestReadsFindAllThatIsLoadedAndNothingElse(t *testing.T) {
	o := testContestOptions(t, ours4, "pebble")
	o.rounds = 1
	var wanted []*read
	for i := range reads {
		wanted = append(wanted, &reads[i])
	}
	for _, s := range hold(t, o, getContest(o, wanted, 40, 2)) {
		assert.NotZero(t, s.Run.Summary.Ops, s.Cell)
		// A run fails if a loaded key is not found, or if an absent one is.
		assert.Equal(t, s.Cell != getCell("absent"), s.Run.Summary.Found.Get > 0, s.Cell)
		assert.Zero(t, s.Run.UserBytes)
	}
}

func TestAContestReportsAWorkerThatFails(t *testing.T) {
	o := testContestOptions(t, ours)
	c := putContest(o, 64, []int{1})
	c.setup.Store.MemoryBytes = -1 << 30 // kvd rejects it
	var stderr bytes.Buffer
	err := withArena(t.Context(), o, &stderr, func(a *arena) error {
		_, err := a.hold(t.Context(), c)
		return err
	})
	require.ErrorContains(t, err, "kvd: ")
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestAFrozenWorkerDoesNothing: a frozen worker does not answer, and then continues.
func TestAFrozenWorkerDoesNothing(t *testing.T) {
	s := newSetup(minMemoryMiB, false)
	s.Engine, s.Store.Dir = ours4, t.TempDir()
	p, err := startEngine(t.Context(), s, "")
	require.NoError(t, err)
	require.NoError(t, p.waitReady(func(int) {}))
	require.NoError(t, p.Freeze())
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(p.PID(), &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.Equal(t, p.PID(), pid)
	require.True(t, status.Stopped())

	require.NoError(t, p.Thaw())
	o := testContestOptions(t, ours4)
	r, err := p.do(task{Run: mixContest(o, workload.Mixes[0], 64, 2).cells[0].run})
	require.NoError(t, err)
	assert.NotZero(t, r.Run.Summary.Ops)
	require.NoError(t, p.Close())
}

func TestAWorkerTellsEachSecond(t *testing.T) {
	o := testContestOptions(t, ours4)
	o.slot = 1100 * time.Millisecond
	s := newSetup(minMemoryMiB, false)
	s.Engine, s.Store.Dir = ours4, t.TempDir()
	p, err := startEngine(t.Context(), s, "")
	require.NoError(t, err)
	require.NoError(t, p.waitReady(func(int) {}))
	var told []float64
	r, err := p.doWatched(task{Run: mixContest(o, workload.Mixes[0], 64, 2).cells[0].run}, func(rate float64) { told = append(told, rate) })
	require.NoError(t, err)
	require.NotEmpty(t, told)
	require.NotEmpty(t, r.Run.Seconds)
	require.LessOrEqual(t, len(r.Run.Seconds), int(r.Run.Summary.Seconds), "what was left at the end is no second")
	assert.NotNil(t, r.Run.Seconds[0].Merging)
	require.NoError(t, p.Close())
}

func TestContestsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(o *contestOptions){
		"no engine":      func(o *contestOptions) { o.engines = nil },
		"unknown engine": func(o *contestOptions) { o.engines = []string{"oracle"} },
		"no round":       func(o *contestOptions) { o.rounds = 0 },
		"negative slot":  func(o *contestOptions) { o.slot = -1 },
		"no slot":        func(o *contestOptions) { o.slot = 0 },
		"no keys":        func(o *contestOptions) { o.keys = 0 },
		"little memory":  func(o *contestOptions) { o.memory = minMemoryMiB - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			o := testContestOptions(t, ours)
			spoil(o)
			err := o.validate()
			if err == nil {
				err = putContest(o, 64, []int{1}).validate()
			}
			require.Error(t, err)
		})
	}
	_, err := findRead("sideways")
	require.ErrorContains(t, err, "uniform")
}

func TestAnOccupiedFileForResultsIsKept(t *testing.T) {
	o := testContestOptions(t, ours)
	o.out = filepath.Join(t.TempDir(), "slots.jsonl")
	require.NoError(t, os.WriteFile(o.out, []byte("old"), 0o600))
	err := withArena(t.Context(), o, &bytes.Buffer{}, func(*arena) error { return nil })
	require.ErrorIs(t, err, os.ErrExist)
}

func TestTheDiskHasARate(t *testing.T) {
	dir := t.TempDir()
	rate, err := diskRate(dir, 8<<20)
	require.NoError(t, err)
	assert.Positive(t, rate)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestFilesAreReadToTheirEnd(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	path := filepath.Join(dir, "below", "f")
	require.NoError(t, os.WriteFile(path, make([]byte, 100_000), 0o600))
	before := bytesRead(t)
	require.NoError(t, readFiles(dir))
	assert.GreaterOrEqual(t, bytesRead(t)-before, 100_000)
	require.ErrorIs(t, readFiles(filepath.Join(dir, "none")), os.ErrNotExist)
}

// bytesRead returns the bytes that the process has requested from the kernel.
func bytesRead(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	require.NoError(t, err)
	return n
}

func TestWrittenBytesAreCounted(t *testing.T) {
	before := writtenNow()
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	require.NoError(t, disk.Sync(filepath.Dir(path)))
	assert.GreaterOrEqual(t, writtenNow().since(before).Calls, int64(1<<20))
	size, err := disk.Used(filepath.Dir(path))
	require.NoError(t, err)
	assert.Equal(t, int64(1<<20), size)
}
