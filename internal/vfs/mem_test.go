package vfs

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHookSeesEveryStepBeforeItHappens(t *testing.T) {
	m := NewMem()
	var steps []string
	m.SetHook(func(s Step) {
		require.Equal(t, len(steps)+1, s.N)
		steps = append(steps, fmt.Sprintf("%s %s: %s", s.Kind, s.Name, fingerprint(t, m.CrashImage(KeepAll, nil))))
	})
	require.NoError(t, m.MkdirAll("d"))
	f, err := m.Create("d/a")
	require.NoError(t, err)
	write(t, f, "hello", 0)
	require.NoError(t, f.Truncate(4))
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("d"))
	require.NoError(t, m.Rename("d/a", "d/b"))
	require.NoError(t, m.Remove("d/b"))
	_, err = m.Lock("LOCK")
	require.NoError(t, err)
	readAll(t, f)
	closeFile(t, f)
	assert.Equal(t, []string{
		"mkdir d: ",
		"create d/a: /d/ ",
		`write d/a: /d/ /d/a="" `,
		`truncate d/a: /d/ /d/a="hello" `,
		`sync d/a: /d/ /d/a="hell" `,
		`syncdir d: /d/ /d/a="hell" `,
		`rename d/a: /d/ /d/a="hell" `,
		`remove d/b: /d/ /d/b="hell" `,
		"create LOCK: /d/ ",
	}, steps)
	assert.Equal(t, len(steps), m.Steps())
}

func TestCapacity(t *testing.T) {
	m := NewMem()
	requireFree := func(want int) {
		t.Helper()
		u, err := m.Usage("/")
		require.NoError(t, err)
		require.Equal(t, Usage{Total: 10, Free: uint64(want)}, u)
	}
	m.SetCapacity(10)
	f := create(t, m, "a", "123456")
	requireFree(4)
	g := create(t, m, "b", "")
	n, err := g.WriteAt([]byte("abcdefgh"), 0)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 4, n, "a short write")
	require.Equal(t, "abcd", readAll(t, g))
	requireFree(0)

	n, err = g.WriteAt([]byte("x"), 4)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Zero(t, n)
	n, err = g.WriteAt([]byte("x"), 400)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Zero(t, n)
	require.ErrorIs(t, g.Truncate(5), syscall.ENOSPC)
	write(t, g, "ABCD", 0) // in place: needs no space
	require.NoError(t, g.Truncate(2))
	requireFree(2)

	requireImageFree := func(want int) {
		t.Helper()
		u, err := m.CrashImage(KeepAll, nil).Usage("/")
		require.NoError(t, err)
		require.Equal(t, Usage{Total: 10, Free: uint64(want)}, u)
	}
	requireImageFree(2)
	require.NoError(t, m.Remove("a"))
	requireFree(2)
	requireImageFree(8)
	closeFile(t, f)
	requireFree(8)
	closeFile(t, f)
	requireFree(8)
	h := create(t, m, "c", "123")
	require.NoError(t, m.Rename("b", "c"))
	requireFree(5)
	closeFile(t, h)
	requireFree(8)

	m.SetCapacity(1)
	u, err := m.Usage("/")
	require.NoError(t, err)
	require.Equal(t, Usage{Total: 1, Free: 0}, u)
	write(t, g, "xy", 0)
}

func TestWildOffsetsAreErrors(t *testing.T) {
	m := NewMem()
	f := create(t, m, "a", "x")
	_, err := f.WriteAt([]byte("x"), 1<<62)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.ErrorIs(t, f.Truncate(1<<62), syscall.EFBIG)
	require.Equal(t, "x", readAll(t, f))
}

func TestNamesAreCleaned(t *testing.T) {
	m := NewMem()
	createSynced(t, m, "/", "a", "x")
	for _, name := range []string{"a", "/a", "./a", "//a", "../a", "/b/../a"} {
		require.Equal(t, "x", read(t, m, name), name)
	}
	_, err := m.Create("/")
	require.ErrorIs(t, err, syscall.EEXIST)
	require.ErrorIs(t, m.Remove("/"), syscall.ENOTEMPTY)
}

// Images are taken while others write, as a hook in a concurrent store does.
func TestImagesDuringConcurrentUse(t *testing.T) {
	m := NewMem()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			name := fmt.Sprint(w)
			f, err := m.Create(name)
			if !assert.NoError(t, err) {
				return
			}
			for i := range 100 {
				_, err := f.WriteAt([]byte(name+name+name+name), int64(i)*4)
				assert.NoError(t, err)
				if i%10 == 0 {
					assert.NoError(t, f.Sync())
					assert.NoError(t, m.SyncDir("/"))
					assert.True(t, m.SyncedBytes(name, 0, int64(i)*4))
				}
			}
			assert.NoError(t, f.Close())
		})
	}
	for seed := range uint64(2) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 4))
			for range 100 {
				image := m.CrashImage(CrashPolicies[rng.IntN(len(CrashPolicies))], rng)
				for _, name := range files(t, image, "/") {
					s := read(t, image, name)
					assert.Empty(t, strings.Trim(s, name[1:]+"\x00"), "nobody else's bytes")
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkCrashImage is of a store of 20 files, one of them a preallocated log
// of 64 MiB with 20 unsynced writes.
func BenchmarkCrashImage(b *testing.B) {
	m := NewMem()
	for i := range 20 {
		createSynced(b, m, "/", fmt.Sprintf("%06d.sst", i), strings.Repeat("x", 40_000))
	}
	log := createSynced(b, m, "/", "wal", "")
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < 64<<20; off += int64(len(zeros)) {
		_, err := log.WriteAt(zeros, off)
		require.NoError(b, err)
	}
	require.NoError(b, log.Sync())
	for i := range 20 {
		write(b, log, strings.Repeat("r", 300), int64(i)*300)
	}
	for _, policy := range CrashPolicies {
		b.Run(policy.String(), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			for b.Loop() {
				m.CrashImage(policy, rng)
			}
		})
	}
}
