package pace

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/pace/pacetest"
	"github.com/kvd-db/kvd/internal/vfs"
)

// disk returns a file system that notes reads, with a file of so many bytes.
func disk(t *testing.T, size int64) *pacetest.Meter {
	t.Helper()
	m := &pacetest.Meter{FS: vfs.NewMem()}
	f, err := m.Create("file")
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, size), 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return m
}

// Work that is held up again and again, for whatever time, reads in no time more than the
// package comment says.
func TestNoTimeHasMoreThanTheRateAndTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, size, largest = 1 << 20, 8 << 20, 64 << 10
		m := disk(t, size)
		f, err := New(rate).Reads(t.Context(), m).Open("file")
		require.NoError(t, err)
		rng := rand.New(rand.NewPCG(7, 1))
		for off := int64(0); off < size; {
			n, err := f.ReadAt(make([]byte, 1+rng.IntN(largest)), off)
			require.True(t, err == nil || errors.Is(err, io.EOF), "%v", err)
			off += int64(n)
			if rng.IntN(20) == 0 {
				time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
			}
		}
		require.NoError(t, f.Close())
		for _, within := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Second} {
			bound := int64(rate*(within+2*burst).Seconds()) + largest
			require.LessOrEqual(t, m.Most(within), bound, "within %v", within)
		}
	})
}

// Work that is not held up gets its rate.
func TestTheRateIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, step := range []int64{1, 100, 1000, 5000} {
			b, begin := New(1000), time.Now()
			for done := int64(0); done < 10_000; done += step {
				require.NoError(t, b.Take(t.Context(), step))
			}
			require.InDelta(t, 10, time.Since(begin).Seconds(), burst.Seconds(), "steps of %d", step)
		}
		begin := time.Now()
		require.NoError(t, New(0).Take(t.Context(), 1<<50))
		require.Zero(t, time.Since(begin), "no bound")
	})
}

// Goroutines that share a bucket share its rate.
func TestABucketIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, begin := New(1000), time.Now()
		for range 10 {
			go func() {
				for range 10 {
					if err := b.Take(t.Context(), 100); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		time.Sleep(9900 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 100*time.Millisecond, b.Owe(0)) // the others are asleep, and nothing is saved up
		require.Equal(t, 9900*time.Millisecond, time.Since(begin))
		time.Sleep(time.Second)
	})
}

// What is owed is waited for later.
func TestWhatIsOwedIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, begin := New(1000), time.Now()
		require.Equal(t, 3*time.Second, b.Owe(3000))
		require.Zero(t, time.Since(begin))
		require.NoError(t, b.Take(t.Context(), 1000))
		require.Equal(t, 4*time.Second, time.Since(begin))
	})
}

// Work rests for a multiple of the time that it takes, whatever its rate, and that may change.
func TestWorkRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 9
		b := NewResting(0, func() int { return times })
		work := func() time.Duration {
			time.Sleep(10 * time.Millisecond)
			begin := time.Now()
			require.NoError(t, b.Take(t.Context(), 1<<30))
			return time.Since(begin)
		}
		require.Equal(t, 90*time.Millisecond, work())
		require.Equal(t, 90*time.Millisecond, work())
		times = 99
		require.Equal(t, 990*time.Millisecond, work())
		times = 1
		require.Zero(t, work(), "shorter than the burst")
		require.Equal(t, 20*time.Millisecond, work(), "that of both")
	})
}

// The end of the context ends a rest. The read before it fails, and nothing more is read.
func TestTheContextEndsARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		m := disk(t, 1000)
		f, err := New(1).Reads(ctx, m).Open("file")
		require.NoError(t, err)
		begin := time.Now()
		time.AfterFunc(time.Second, func() { cancel(why) })
		_, err = f.ReadAt(make([]byte, 1000), 0)
		require.Equal(t, why, err)
		require.Equal(t, time.Second, time.Since(begin))
		_, err = f.ReadAt(make([]byte, 1), 0)
		require.Equal(t, why, err)
		require.NoError(t, f.Close())
		read, _ := m.Total()
		require.EqualValues(t, 1000, read)
	})
}

func TestAFileThatIsMissing(t *testing.T) {
	_, err := New(1).Reads(t.Context(), vfs.NewMem()).Open("file")
	require.Error(t, err)
}
