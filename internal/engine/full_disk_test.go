package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// hog is another process that fills the disk of a store: once greedy, it takes all free
// space before each operation of the store, including space that the store has just freed.
type hog struct {
	mem    *vfs.Mem
	size   int64
	at     int64 // the operation before which it turns greedy
	length int64 // for so many operations; 0: until leave
	greedy atomic.Bool
	gone   atomic.Bool // it is greedy no more
	steps  atomic.Int64
	mu     sync.Mutex // serialises take, leave and stay
}

func newHog(mem *vfs.Mem, size, at int64) *hog {
	h := &hog{mem: mem, size: size, at: at}
	mem.SetCapacity(size)
	mem.SetHook(func(vfs.Step) {
		switch n := h.steps.Add(1); {
		case h.gone.Load():
		case n == h.at:
			h.greedy.Store(true)
		case h.length > 0 && n == h.at+h.length:
			h.leave()
		}
		h.take()
	})
	return h
}

// take takes all free space, if it is greedy.
func (h *hog) take() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.greedy.Load() {
		return
	}
	usage, err := h.mem.Usage("/")
	if err != nil {
		panic(err)
	}
	h.mem.SetCapacity(int64(usage.Total - usage.Free))
}

// leave gives the space back.
func (h *hog) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone.Store(true)
	h.greedy.Store(false)
	h.mem.SetCapacity(h.size)
}

// stay has it keep what it has taken, and take no more.
func (h *hog) stay() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone.Store(true)
	h.greedy.Store(false)
}

// fullLife is a client of a store on a disk that fills, and what it knows of each key.
type fullLife struct {
	t    *testing.T
	e    *Engine
	have map[string]string
	// refused counts the writes that were told that the disk is full.
	refused int
}

// may reports whether the answer to a write is one that a full disk may give.
func (l *fullLife) may(err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, kv.ErrReadOnly), errors.Is(err, kv.ErrOverloaded), errors.Is(err, context.DeadlineExceeded):
		require.NotErrorIs(l.t, err, kv.ErrUncertain)
		require.NotErrorIs(l.t, err, kv.ErrFailed)
		l.refused++
		return false
	}
	require.NoError(l.t, err)
	return false
}

func (l *fullLife) puts(from, n int) {
	levels := []kv.WriteOptions{synced, buffered, memory}
	for i := from; i < from+n; i++ {
		k, v := fmt.Sprintf("key-%03d", i%97), fmt.Sprintf("%d-%s", i, strings.Repeat("v", 100+i*37%900))
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		_, err := l.e.Put(ctx, []byte(k), []byte(v), levels[i%3])
		cancel()
		if l.may(err) {
			l.have[k] = v
		}
	}
}

func (l *fullLife) dels(from, n int) {
	for i := from; i < from+n; i++ {
		k := fmt.Sprintf("key-%03d", i%97)
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		_, err := l.e.Delete(ctx, []byte(k), synced)
		cancel()
		if l.may(err) {
			delete(l.have, k)
		}
	}
}

// check compares every key with what was acknowledged.
func (l *fullLife) check() {
	l.t.Helper()
	require.NoError(l.t, l.e.Err(), "the store must not stop")
	got := map[string]string{}
	for i := range 97 {
		if v, ok := get(l.t, l.e, fmt.Sprintf("key-%03d", i)); ok {
			got[fmt.Sprintf("key-%03d", i)] = v
		}
	}
	if !maps.Equal(l.have, got) {
		require.Equal(l.t, slices.Sorted(maps.Keys(l.have)), slices.Sorted(maps.Keys(got)))
		require.Equal(l.t, l.have, got)
	}
}

// writable waits until writes go on by themselves.
func (l *fullLife) writable() {
	l.t.Helper()
	for range 600 {
		_, err := l.e.Put(l.t.Context(), []byte("key-000"), []byte("back"), synced)
		if l.may(err) {
			l.have["key-000"] = "back"
			return
		}
		time.Sleep(time.Second)
	}
	l.t.Fatal("ten minutes after the space came back no write is taken")
}

func fullOptions(fs vfs.FS) Options {
	o := small(fs)
	o.LowDiskBytes = 64 << 10
	return o
}

// fillAt lives until another process fills the disk before operation at, goes on for a
// while, is killed or not, and has its space back. It reports whether the disk was
// filled at all.
func fillAt(t *testing.T, at int64, kill bool) (filled bool) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		e, err := Open("data", fullOptions(mem))
		require.NoError(t, err)
		h := newHog(mem, 8<<20, at)
		l := &fullLife{t: t, e: e, have: map[string]string{}}
		l.puts(0, 150)
		l.dels(20, 20)
		l.puts(150, 100)
		filled = h.greedy.Load()
		l.check()
		if kill {
			// A kill loses what only memory has. What was appended at the level of memory is
			// written at once, but perhaps by another goroutine than the caller's.
			synctest.Wait()
			image := mem.KillImage()
			_ = e.Close() // of a store that no longer counts
			h = newHog(image, 8<<20, 0)
			h.greedy.Store(filled)
			l.e, err = Open("data", fullOptions(image))
			require.NoError(t, err, "a store on a full disk opens")
			l.check()
			l.puts(250, 20)
			l.check()
		}
		time.Sleep(3 * time.Second)
		l.check()
		h.leave()
		l.writable()
		l.puts(300, 50)
		l.check()
		require.NoError(t, l.e.Close())
	})
	return filled
}

// fillStep is how many operations lie between two runs of a test that fills the disk at
// one operation after the other.
func fillStep(normal int64) int64 {
	switch {
	case os.Getenv("KVD_FILL_EVERY") != "":
		return 1 // minutes
	case testsize.Reduced():
		return 6 * normal
	}
	return normal
}

// minFills is how many runs such a test has at least, or it shows nothing.
func minFills() int {
	if testsize.Reduced() {
		return 2
	}
	return 5
}

// TestAnotherProcessFillsTheDisk fills the disk before a file-system operation of a life,
// each of some in turn. The store goes on to answer reads rightly, never stops, loses nothing that was
// acknowledged, and takes writes again by itself once there is room.
func TestAnotherProcessFillsTheDisk(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("kill=%v", kill), func(t *testing.T) {
			t.Parallel()
			runs := 0
			for at := int64(1); fillAt(t, at, kill); at += fillStep(61) {
				runs++
			}
			t.Logf("%d runs, each with a disk that fills at another operation", runs)
			require.Greater(t, runs, minFills())
		})
	}
}
