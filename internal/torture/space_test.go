package torture

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// idle is for how long the store is left alone, in real time: the promise is about it.
const idle = time.Minute

// TestIdleStoresGiveSpaceBack leaves real servers alone after deletes, expiry,
// overwrites and a load with snapshots, and measures their directories. It takes
// minutes, so scripts/space.sh runs it; engine's TestSpaceComesBack is its smaller form.
func TestIdleStoresGiveSpaceBack(t *testing.T) {
	mib, _ := strconv.Atoi(os.Getenv("SPACE_MIB"))
	if mib == 0 {
		t.Skip("SPACE_MIB is not set: scripts/space.sh runs this")
	}
	const valueBytes = 1000
	keys := mib << 20 / valueBytes
	ctx := t.Context()
	load := func(t *testing.T, db *kvd.Client, from, to, round int, o ...kvd.WriteOption) {
		random := rand.NewChaCha8([32]byte{byte(round)})
		value := make([]byte, valueBytes)
		var b kvd.Batch
		for i := from; i < to; i++ {
			_, _ = random.Read(value) // never fails
			b.Put(spaceKey(i), value, o...)
			if b.Len() == 500 || i == to-1 {
				_, err := db.Apply(ctx, &b, kvd.Durable(kvd.Buffered))
				require.NoError(t, err)
				b.Reset()
			}
		}
	}
	for _, c := range []struct {
		name string
		act  func(t *testing.T, db *kvd.Client) (live int)
	}{
		{"delete every key", func(t *testing.T, db *kvd.Client) int {
			load(t, db, 0, keys, 0)
			var b kvd.Batch
			for i := range keys {
				if b.Delete(spaceKey(i)); b.Len() == 1000 || i == keys-1 {
					_, err := db.Apply(ctx, &b, kvd.Durable(kvd.Buffered))
					require.NoError(t, err)
					b.Reset()
				}
			}
			return 0
		}},
		{"range delete over all", func(t *testing.T, db *kvd.Client) int {
			load(t, db, 0, keys, 0)
			require.NoError(t, db.DeleteRange(ctx, kvd.Prefix([]byte("user"))))
			return 0
		}},
		{"expiry of all", func(t *testing.T, db *kvd.Client) int {
			load(t, db, 0, keys, 0, kvd.TTL(10*time.Second))
			return 0
		}},
		{"five overwrites of all", func(t *testing.T, db *kvd.Client) int {
			for round := range 6 {
				load(t, db, 0, keys, round)
			}
			return keys
		}},
		{"mixed load with snapshots", func(t *testing.T, db *kvd.Client) int {
			few := min(keys, 48<<20/valueBytes)
			load(t, db, 0, few, 0)
			stop := make(chan struct{})
			var snapshots sync.WaitGroup
			defer func() {
				close(stop)
				snapshots.Wait()
			}()
			snapshots.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					assert.NoError(t, db.View(ctx, func(s *kvd.Snapshot) error {
						for range 100 {
							if _, err := s.Get(ctx, spaceKey(rand.IntN(few))); err != nil {
								return err
							}
						}
						return nil
					}))
				}
			})
			for round := range 1 + 6*keys/few {
				load(t, db, 0, few, round)
			}
			return few
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			var flags []string
			if memory := os.Getenv("SPACE_MEMORY"); memory != "" {
				flags = append(flags, "--memory", memory)
			}
			s := serve(t, dir, flags...)
			db, err := kvd.Open(s.addr, kvd.WithTimeout(10*time.Minute)) // however busy the machine is
			require.NoError(t, err)
			live := int64(c.act(t, db)) * int64(valueBytes+len(spaceKey(0)))
			require.NoError(t, db.Close())
			allowed := live*13/10 + 64<<20
			before := treeBytes(t, dir)
			reached := time.Duration(-1)
			for start := time.Now(); time.Since(start) < idle; time.Sleep(time.Second) {
				if now := treeBytes(t, dir); reached < 0 && now <= allowed {
					reached = time.Since(start)
				}
			}
			after := treeBytes(t, dir)
			when := "never reached"
			if reached >= 0 {
				when = fmt.Sprintf("reached after %v", reached.Round(time.Second))
			}
			fmt.Printf("space: %-26s %6d MiB live %6d MiB before %6d MiB after %v, %5d MiB allowed, %s\n",
				c.name, live>>20, before>>20, after>>20, idle, allowed>>20, when)
			assert.LessOrEqual(t, after, allowed)
			s.stop(t)
		})
	}
}

func spaceKey(i int) []byte { return fmt.Appendf(nil, "user%012d", i) }

// treeBytes returns the bytes of all files below dir, but for the ballast, which is space
// in reserve. Files may go meanwhile.
func treeBytes(t *testing.T, dir string) (sum int64) {
	t.Helper()
	ballast := descriptor.BallastPath(dir)
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == ballast {
			return gone(err)
		}
		info, err := entry.Info()
		if err == nil {
			sum += info.Size()
		}
		return gone(err)
	}))
	return sum
}

// gone returns err unless it says that there is no such file.
func gone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
