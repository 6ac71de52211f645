package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// fillDir returns a directory on a small file system of its own, which the test may fill.
func fillDir(t *testing.T) (dir string, cycles int) {
	dir = os.Getenv("FILL_DIR")
	if dir == "" {
		t.Skip("FILL_DIR names no file system to fill; scripts/fill.sh makes one")
	}
	cycles, err := strconv.Atoi(os.Getenv("FILL_CYCLES"))
	require.NoError(t, err)
	return dir, cycles
}

// filler is the clients of a store whose disk fills.
type filler struct {
	t  *testing.T
	db *kvd.Client

	mu    sync.Mutex
	acked map[string]uint64 // the seed of each value that was acknowledged
	next  uint64
}

func fillValue(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 1<<10+r.IntN(63<<10))
	for i := 0; i+8 <= len(b); i += 8 {
		n := r.Uint64()
		for j := range 8 {
			b[i+j] = byte(n >> (8 * j))
		}
	}
	return b
}

func (f *filler) open(addr string) {
	var err error
	f.db, err = kvd.Open(addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(f.t, err)
}

// fill puts until the server says that it is read-only, to each client.
func (f *filler) fill(clients int) {
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for {
				f.mu.Lock()
				f.next++
				seed := f.next
				f.mu.Unlock()
				key := fmt.Sprintf("key-%08d", seed)
				level := []kvd.Durability{kvd.Sync, kvd.Buffered}[seed%2]
				err := f.db.Put(context.Background(), []byte(key), fillValue(seed), kvd.Durable(level))
				switch {
				case err == nil:
					f.mu.Lock()
					f.acked[key] = seed
					f.mu.Unlock()
				case errors.Is(err, kvd.ErrReadOnly):
					return
				case !errors.Is(err, kvd.ErrOverloaded):
					panic(fmt.Sprintf("a full disk must not answer: %v", err))
				}
			}
		})
	}
	all.Wait()
}

// check reads every value that was acknowledged.
func (f *filler) check() {
	f.t.Helper()
	for key, seed := range f.acked {
		got, err := f.db.Get(context.Background(), []byte(key))
		require.NoError(f.t, err, "%s", key)
		require.True(f.t, bytes.Equal(fillValue(seed), got), "%s has another value", key)
	}
}

// hogFile fills the file system to its last byte.
func hogFile(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	sizes := []int{1 << 20, 4 << 10, 1}
	b := make([]byte, sizes[0])
	for i, written := 0, 0; i < len(sizes); {
		_, err := f.Write(b[:sizes[i]])
		written += sizes[i]
		switch {
		case err != nil:
			require.ErrorIs(t, err, syscall.ENOSPC)
			i, written = i+1, 0
		case i > 0 && written >= sizes[i-1]: // the server has made room, which would take ages byte by byte
			i, written = i-1, 0
		}
	}
	require.NoError(t, f.Close())
}

// TestADiskThatFills has clients, and in every second cycle another process too, fill a
// file system, and restarts the server on the full one in two of three cycles: once after
// an orderly stop, once after kill -9. It never ends by itself, loses nothing that was
// acknowledged, answers reads all the time, takes deletes, and then takes writes without
// any command.
func TestADiskThatFills(t *testing.T) {
	dir, cycles := fillDir(t)
	hog := filepath.Join(dir, "hog")
	flags := []string{"--low-disk", "16MiB", "--memory", "64MiB", "--partitions", "4"}
	s := serve(t, filepath.Join(dir, "data"), flags...)
	defer func() {
		if t.Failed() {
			t.Log(s.log)
			_ = s.cmd.Process.Kill() // of a server that may have ended
		}
	}()
	f := &filler{t: t, acked: map[string]uint64{}}
	f.open(s.addr)
	restarts, puts, told := 0, 0, 0
	var longest time.Duration
	for cycle := range cycles {
		hogged := make(chan struct{})
		if cycle%2 == 1 {
			go func() {
				defer close(hogged)
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond) // at any moment
				hogFile(t, hog)
			}()
		} else {
			close(hogged)
		}
		f.fill(4)
		<-hogged
		puts += len(f.acked)
		if errors.Is(f.db.Ping(context.Background()), kvd.ErrReadOnly) {
			told++ // unless merges have made room meanwhile
		}
		f.check()
		if cycle%3 > 0 {
			require.NoError(t, f.db.Close())
			if cycle%3 == 1 {
				s.stop(t)
			} else {
				s.kill(t)
			}
			s = serve(t, filepath.Join(dir, "data"), flags...)
			f.open(s.addr)
			restarts++
			f.check()
		}
		require.NoError(t, os.RemoveAll(hog))
		begin := time.Now()
		f.empty()
		longest = max(longest, time.Since(begin))
		t.Logf("cycle %d: %d values stored, writable %v after the deletes began", cycle+1, len(f.acked), time.Since(begin).Round(time.Millisecond))
		clear(f.acked)
	}
	require.NoError(t, f.db.Close())
	s.stop(t)
	require.NotContains(t, s.log.String(), "stopped for good")
	require.Positive(t, told)
	t.Logf("%d cycles, %d restarts on a full disk, %d times health said read-only, %d values acknowledged and read back, none lost; writable again at the latest after %v",
		cycles, restarts, told, puts, longest.Round(time.Millisecond))
}

// empty deletes everything and returns when a put is taken again. The server may need
// other space first, if another process has just given it back.
func (f *filler) empty() {
	f.t.Helper()
	for deleted := false; ; {
		if !deleted {
			err := f.db.DeleteRange(context.Background(), kvd.Prefix([]byte("key-")))
			if err != nil {
				require.ErrorIs(f.t, err, kvd.ErrReadOnly)
			}
			deleted = err == nil
		}
		err := f.db.Put(context.Background(), []byte("alive"), []byte("yes"))
		if err == nil && deleted {
			return
		}
		if err != nil {
			require.ErrorIs(f.t, err, kvd.ErrReadOnly)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
