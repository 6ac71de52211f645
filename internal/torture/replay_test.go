package torture

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/bytesize"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// replayed is what a log holds, all of it in memtables of the process that wrote it.
type replayed struct {
	keys, bytes int // bytes of each value
	goroutines  int
}

// replayCases have some 100 MB each, more than the budget and its slack by a quarter.
var replayCases = map[string]replayed{
	"values of 4 KiB": {keys: 25_000, bytes: 4 << 10, goroutines: 32},
	"values of 4 MiB": {keys: 25, bytes: 4 << 20, goroutines: 8},
}

func (*replayed) key(i int) []byte { return fmt.Appendf(nil, "replayed-%08d", i) }

// noise is random bytes that values are cut from: to make each byte of each value would take
// most of the test.
var noise = func() []byte {
	b := make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // it never fails
	return b
}()

// value differs from that of any other key in its first eight bytes, and in the others too.
func (r *replayed) value(i int) []byte {
	value := binary.BigEndian.AppendUint64(make([]byte, 0, r.bytes), uint64(i))
	from := i * 7919 % (len(noise) - r.bytes)
	return append(value, noise[from:from+r.bytes-len(value)]...)
}

// each does something with all keys, on some goroutines, until one of them fails.
func (r *replayed) each(t *testing.T, s *server, do func(db *kvd.Client, i int) bool) {
	t.Helper()
	db, err := kvd.Open(s.addr, kvd.WithConns(2), kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	var all sync.WaitGroup
	for g := range r.goroutines {
		all.Go(func() {
			for i := g; i < r.keys && do(db, i); i += r.goroutines {
			}
		})
	}
	all.Wait()
	require.NoError(t, db.Close())
}

// A store whose log was written with a large memory budget, and that was killed, opens
// within a small one and a quarter more, with everything acknowledged, and so does what a
// kill leaves right after that.
func TestReplayStaysWithinASmallerBudget(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	const budget = "64MiB"
	limit, err := bytesize.Parse(budget)
	require.NoError(t, err)
	for name, r := range replayCases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			s := serve(t, dir, "--memory", "4GiB")
			r.each(t, s, func(db *kvd.Client, i int) bool {
				err := db.Put(context.Background(), r.key(i), r.value(i), kvd.Durable(kvd.Buffered))
				return err == nil || assert.NoError(t, err)
			})
			s.kill(t)
			for opening := range 2 {
				s = serve(t, dir, "--memory", budget)
				peak := peakOf(t, s)
				t.Logf("opening %d: peak %d MiB", opening+1, peak>>20)
				assert.LessOrEqual(t, peak, limit+limit/slackShare, "%d MiB at a budget of %s", peak>>20, budget)
				r.each(t, s, func(db *kvd.Client, i int) bool {
					if opening == 0 && i%4 > 0 {
						return true // the next opening reads all
					}
					value, err := db.Get(context.Background(), r.key(i))
					return err == nil && bytes.Equal(r.value(i), value) ||
						assert.NoError(t, err) && assert.True(t, false, "%s has another value", r.key(i))
				})
				s.kill(t)
			}
		})
	}
}
