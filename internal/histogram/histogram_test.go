package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBucketsCoverEveryValueOnceAndAreNarrow(t *testing.T) {
	next := uint64(0)
	for i := range bucketCount {
		low, high := bucketBounds(i)
		require.Equal(t, next, low, "bucket %d begins where the one before it ends", i)
		require.Equal(t, i, bucketOf(low))
		require.Equal(t, i, bucketOf(high))
		require.LessOrEqual(t, high-low, low/steps, "bucket %d is at most 1/%d wide", i, steps)
		next = high + 1
	}
	assert.Equal(t, uint64(1)<<rangeBit, next)
	assert.Equal(t, bucketCount-1, bucketOf(math.MaxInt64))
}

func TestQuantilesNeverUnderstateAndAreWithinOnePercent(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	values := make([]time.Duration, 20_000)
	for i := range values {
		values[i] = time.Duration(math.Exp(rng.Float64() * 25))
		h.Record(values[i])
	}
	slices.Sort(values)
	var s Snapshot
	s.Add(&h)
	require.EqualValues(t, len(values), s.Count())
	for _, q := range []float64{0, 0.1, 0.5, 0.9, 0.99, 0.999, 1} {
		exact := values[max(int(math.Ceil(q*float64(len(values))))-1, 0)]
		got := s.Quantile(q)
		assert.GreaterOrEqual(t, got, exact, "q=%v", q)
		assert.LessOrEqual(t, float64(got), float64(exact)*(1+1.0/steps), "q=%v", q)
	}
	assert.Equal(t, values[len(values)-1], s.Max(), "the largest of all is exact")

	var sum float64
	for _, v := range values {
		sum += float64(v)
	}
	assert.InEpsilon(t, sum/float64(len(values)), float64(s.Mean()), 0.004)
}

// TestRanksAreExact compares the ranks of whole percentages with those of integer arithmetic.
func TestRanksAreExact(t *testing.T) {
	for count := uint64(1); count <= 400; count++ {
		for percent := uint64(1); percent <= 100; percent++ {
			require.Equal(t, (percent*count+99)/100, Rank(float64(percent)/100, count), "%d %% of %d", percent, count)
		}
	}
	assert.EqualValues(t, 1, Rank(0, 10))
	assert.EqualValues(t, 999_000, Rank(0.999, 1_000_000))
	assert.EqualValues(t, 999_001, Rank(0.999, 1_000_001))
}

func TestValuesOutsideTheRangeAreCounted(t *testing.T) {
	var h Histogram
	h.Record(-time.Second)
	h.Record(100 * time.Hour)
	var s Snapshot
	s.Add(&h)
	assert.EqualValues(t, 2, s.Count())
	assert.Zero(t, s.Quantile(0.5))
	assert.Equal(t, 100*time.Hour, s.Max(), "only the maximum is exact out there")
}

func TestAnIntervalIsTheDifferenceOfTwoSnapshots(t *testing.T) {
	var h Histogram
	for range 1000 {
		h.Record(time.Second)
	}
	var earlier, now Snapshot
	earlier.Add(&h)
	for range 10 {
		h.Record(time.Millisecond)
	}
	now.Add(&h)
	now.Subtract(&earlier)
	assert.EqualValues(t, 10, now.Count())
	assert.InEpsilon(t, float64(time.Millisecond), float64(now.Max()), 0.01, "the second lies before the interval")
	assert.InEpsilon(t, float64(time.Millisecond), float64(now.Mean()), 0.01)

	earlier.Merge(&now)
	assert.EqualValues(t, 1010, earlier.Count())
	assert.Equal(t, time.Second, earlier.Max())
}

// TestSnapshotsAgainstCountsByBucket: a snapshot has room only for the powers of two of what it
// counts, and none of it is seen.
func TestSnapshotsAgainstCountsByBucket(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	held := func(s *Snapshot) map[time.Duration]uint64 {
		counts, last, total := make(map[time.Duration]uint64), time.Duration(-1), uint64(0)
		s.Each(func(low, high time.Duration, n uint64) {
			require.Less(t, last, low, "in ascending order")
			counts[low], last, total = n, high, total+n
		})
		require.Equal(t, total, s.Count())
		return counts
	}
	for range 50 {
		var h Histogram
		var earlier, merged Snapshot
		want := [2]map[time.Duration]uint64{make(map[time.Duration]uint64), make(map[time.Duration]uint64)}
		for half := range want {
			for range rng.IntN(40) {
				d := time.Duration(rng.Uint64() >> (2 + rng.IntN(61)))
				h.Record(d)
				low, _ := bucketBounds(bucketOf(uint64(d)))
				want[half][time.Duration(low)]++
			}
			if half == 0 {
				earlier.Add(&h)
			}
		}
		require.Equal(t, want[0], held(&earlier))
		var now Snapshot
		now.Add(&h)
		since := now.Clone()
		since.Subtract(&earlier)
		require.Equal(t, want[1], held(since))
		merged.Merge(&earlier)
		merged.Merge(since)
		require.Equal(t, held(&now), held(&merged))
		merged.Record(5, 3)
		merged.Subtract(&now)
		require.Equal(t, map[time.Duration]uint64{5: 3}, held(&merged))
		require.Equal(t, want[0], held(&earlier), "others do not change with it")
		require.Equal(t, want[1], held(since))
	}
}

func TestEmptySnapshotAnswersZero(t *testing.T) {
	var s Snapshot
	assert.Zero(t, s.Count())
	assert.Zero(t, s.Quantile(0.99))
	assert.Zero(t, s.Max())
	assert.Zero(t, s.Mean())
}

func TestReadersAndRecordersDoNotDisturbEachOther(t *testing.T) {
	const recorders, each = 4, 20_000
	var h Histogram
	var wg sync.WaitGroup
	for r := range recorders {
		wg.Go(func() {
			for i := range each {
				h.Record(time.Duration(r*each + i))
			}
		})
	}
	recorded := make(chan struct{})
	go func() { wg.Wait(); close(recorded) }()
	var earlier uint64
	for done := false; !done; {
		select {
		case <-recorded:
			done = true
		default:
		}
		var s Snapshot
		s.Add(&h)
		require.GreaterOrEqual(t, s.Count(), earlier, "counts only grow")
		earlier = s.Count()
	}
	assert.EqualValues(t, recorders*each, earlier)
}

func TestRecordDoesNotAllocate(t *testing.T) {
	var h Histogram
	assert.Zero(t, testing.AllocsPerRun(1000, func() { h.Record(time.Microsecond) }))
}

func BenchmarkRecord(b *testing.B) {
	var h Histogram
	for i := range b.N {
		h.Record(time.Duration(i & 0xfffff))
	}
}

// BenchmarkInterval reads a histogram as a run does each second.
func BenchmarkInterval(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	for range 10_000 {
		h.Record(100*time.Microsecond + time.Duration(rng.Uint64N(uint64(time.Millisecond))))
	}
	var earlier Snapshot
	earlier.Add(&h)
	h.Record(time.Millisecond)
	b.ReportAllocs()
	for b.Loop() {
		now := new(Snapshot)
		now.Add(&h)
		kept = new(Snapshot)
		kept.Merge(now)
		kept.Subtract(&earlier)
		if kept.Quantile(0.99) == 0 {
			b.Fatal("nothing was recorded since")
		}
	}
}

var kept *Snapshot
