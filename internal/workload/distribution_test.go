package workload

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
)

func testRand() *rand.Rand { return rand.New(rand.NewPCG(42, 7)) }

// draws counts how often each key is drawn.
func draws(t *testing.T, c chooser, keys uint64, n int) []int {
	t.Helper()
	counts := make([]int, keys)
	for range n {
		id := c.next()
		if id >= keys { // not an assertion: this runs a million times
			t.Fatalf("drew key %d of %d", id, keys)
		}
		counts[id]++
	}
	return counts
}

// requireFits does a chi-square test: the statistic of k cells has mean k-1 and
// variance 2(k-1), and five standard deviations are one chance in a million.
func requireFits(t *testing.T, counts []int, probability func(cell int) float64) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	var chi2 float64
	for i, n := range counts {
		expected := probability(i) * float64(total)
		require.Greater(t, expected, 5.0, "cell %d is too small for the test", i)
		chi2 += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	degrees := float64(len(counts) - 1)
	require.Less(t, chi2, degrees+5*math.Sqrt(2*degrees), "chi-square of %d cells", len(counts))
}

func TestUniformDrawsEveryKeyAlike(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys = 500
	_, reads := newChoosers(Uniform, 0, keys, 0, 1, testRand())
	requireFits(t, draws(t, reads, keys, 200_000), func(int) float64 { return 1.0 / keys })
}

func TestHotspotSendsFourFifthsToOneFifth(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys = 500
	_, reads := newChoosers(Hotspot, 0, keys, 0, 1, testRand())
	requireFits(t, draws(t, reads, keys, 400_000), func(i int) float64 {
		if i < keys/5 {
			return 0.8 / (keys / 5)
		}
		return 0.2 / (keys - keys/5)
	})
}

func TestSequentialWorkersTogetherTakeEveryKeyOnceInACycle(t *testing.T) {
	const keys, workers = 1003, 4
	counts := make([]int, keys)
	for w := range workers {
		puts, reads := newChoosers(Sequential, 0, keys, w, workers, testRand())
		cycle := puts.(*sequential).cycle()
		for i := range cycle {
			id := puts.next()
			require.Equal(t, uint64(w)+i*workers, id)
			require.Equal(t, id, reads.next(), "reads have a cursor of their own")
			counts[id]++
		}
		require.EqualValues(t, w, puts.next(), "and begin again")
	}
	for id, n := range counts {
		require.Equal(t, 1, n, "key %d", id)
	}
}

// grayCDF is the share of the draws below a rank by the formula of Gray et al.: its
// inverse, solved for u.
func grayCDF(z *zipf, rank float64) float64 {
	switch {
	case rank <= 0:
		return 0
	case rank <= 1:
		return 1 / z.zeta
	case rank >= z.n:
		return 1
	}
	u := (math.Pow(rank/z.n, 1/z.alpha) - 1 + z.eta) / z.eta
	return max(u, z.zeta2/z.zeta) // smaller shares belong to rank 1
}

func TestZipfianDrawsFollowTheFormula(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys = 300
	z := newZipf(keys, DefaultTheta, testRand())
	requireFits(t, draws(t, z, keys, 1_000_000), func(i int) float64 {
		return grayCDF(z, float64(i+1)) - grayCDF(z, float64(i))
	})
}

func TestZipfianIsCloseToTheLaw(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys, n = 100_000, 1_000_000
	z := newZipf(keys, DefaultTheta, testRand())
	counts := draws(t, z, keys, n)
	for _, first := range []int{1, 2, 10, 100, 1000, 10_000, 50_000} {
		drawn := 0
		for _, c := range counts[:first] {
			drawn += c
		}
		assert.InDelta(t, zeta(uint64(first), DefaultTheta)/zeta(keys, DefaultTheta), float64(drawn)/n, 0.015, "share of the first %d ranks", first)
	}
}

func TestZetaOfManyTermsIsTheirSum(t *testing.T) {
	testsize.OneGoroutine(t)
	sum := 0.0
	for i := 1; i <= 1_000_000; i++ {
		sum += math.Pow(float64(i), -DefaultTheta)
		if i == 9_999 || i == 10_000 || i == 10_001 || i == 1_000_000 {
			require.InEpsilon(t, sum, zeta(uint64(i), DefaultTheta), 1e-11, "%d terms", i)
		}
	}
}

func TestZipfianOfOneOrTwoKeysStaysInside(t *testing.T) {
	assert.Equal(t, []int{100}, draws(t, newZipf(1, DefaultTheta, testRand()), 1, 100))
	requireFits(t, draws(t, newZipf(2, DefaultTheta, testRand()), 2, 10_000), func(i int) float64 {
		return math.Pow(float64(i+1), -DefaultTheta) / zeta(2, DefaultTheta)
	})
}

// TestZipfianOfAnyThetaIsCloseToTheLaw: the formula of Gray et al. is approximate.
func TestZipfianOfAnyThetaIsCloseToTheLaw(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys, n = 10_000, 300_000
	for _, theta := range []float64{0.2, 0.5, 0.8, 0.999} {
		counts := draws(t, newRanks(keys, theta, testRand()), keys, n)
		drawn := 0
		for first, c := range counts {
			if drawn += c; first+1 == 1 || first+1 == 10 || first+1 == 1000 {
				assert.InDelta(t, zeta(uint64(first+1), theta)/zeta(keys, theta), float64(drawn)/n, 0.02, "theta %v: share of the first %d ranks", theta, first+1)
			}
		}
	}
}

// TestSteepZipfianIsTheLaw: above a theta of 1 the shares are exact.
func TestSteepZipfianIsTheLaw(t *testing.T) {
	testsize.OneGoroutine(t)
	for _, theta := range []float64{0.5, 1, 1.2, 2} {
		for _, keys := range []uint64{1, 2, 3, 100} {
			sum := 0.0
			for i := range keys {
				sum += math.Pow(float64(i+1), -theta)
			}
			counts := draws(t, newSteepZipf(keys, theta, testRand()), keys, 400_000)
			if keys == 1 {
				continue // draws has checked all there is
			}
			requireFits(t, counts, func(i int) float64 { return math.Pow(float64(i+1), -theta) / sum })
		}
	}
}

func TestSteepZipfianOfVeryManyKeysStaysInside(t *testing.T) {
	testsize.OneGoroutine(t)
	for _, theta := range []float64{1, 1.0000001, 3, MaxTheta} {
		z := newRanks(MaxKeys, theta, testRand())
		for range 100_000 {
			if id := z.next(); id >= MaxKeys { // not an assertion: this runs often
				t.Fatalf("theta %v: drew key %d of %d", theta, id, uint64(MaxKeys))
			}
		}
	}
}

func TestAGrowingSteepZipfianIsTheSameAsANewOne(t *testing.T) {
	z := newSteepZipf(10, 1.5, testRand())
	z.grow(1000)
	fresh := newSteepZipf(1000, 1.5, testRand())
	for range 1000 {
		require.Equal(t, fresh.next(), z.next())
	}
}

func TestThetaSkewsEveryZipfianDistribution(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys, n = 1000, 200_000
	for _, d := range []Distribution{Zipfian, ScrambledZipfian, Latest} {
		for _, theta := range []float64{0.5, 0.99, 1.5} {
			puts, reads := newChoosers(d, theta, keys, 0, 1, testRand())
			for range keys {
				if d == Latest {
					puts.next()
				}
			}
			sum := 0.0
			for i := range keys {
				sum += math.Pow(float64(i+1), -theta)
			}
			hottest := slices.Max(draws(t, reads, keys, n))
			assert.InDelta(t, 1/sum, float64(hottest)/n, 0.01, "%s with theta %v", d, theta)
		}
	}
}

func TestScrambledZipfianHasTheSameSkewElsewhere(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys, n = 100_000, 500_000
	_, reads := newChoosers(ScrambledZipfian, 0, keys, 0, 1, testRand())
	counts := draws(t, reads, keys, n)
	hottest, where := 0, 0
	var tenths [10]int
	for id, c := range counts {
		if c > hottest {
			hottest, where = c, id
		}
		if c < n/1000 { // the dozen hottest keys would dominate the rest
			tenths[id*10/keys] += c
		}
	}
	assert.InDelta(t, 1/zeta(keys, DefaultTheta), float64(hottest)/n, 0.005, "the likeliest key")
	assert.NotZero(t, where)
	least, most := tenths[0], tenths[0]
	for _, c := range tenths {
		least, most = min(least, c), max(most, c)
	}
	assert.Less(t, float64(most), 1.15*float64(least), "the others are spread over the key space: %v", tenths)
}

func TestLatestReadsWhatWasPutLast(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys, written, n = 100_000, 20_000, 200_000
	puts, reads := newChoosers(Latest, 0, keys, 0, 1, testRand())
	assert.Zero(t, reads.next(), "with nothing put there is only the first key")
	for range written {
		puts.next()
	}
	counts := draws(t, reads, keys, n)
	assert.InDelta(t, 1/zeta(keys, DefaultTheta), float64(counts[written-1])/n, 0.01, "the newest key")
	newest, all := 0, 0
	for id, c := range counts {
		all += c
		if id >= written {
			require.Zero(t, c, "key %d was not put", id)
		}
		if id >= written-100 {
			newest += c
		}
	}
	assert.Equal(t, n, all)
	assert.Greater(t, float64(newest)/n, 0.35, "the newest hundred of twenty thousand")

	for range keys - written/2 { // wraps around
		puts.next()
	}
	counts = draws(t, reads, keys, n)
	assert.InDelta(t, 1/zeta(keys, DefaultTheta), float64(counts[written/2-1])/n, 0.01, "the newest key of the second cycle")
}

// TestLatestBeginsWithWhatIsThere: without puts, too, reads prefer the newest keys.
func TestLatestBeginsWithWhatIsThere(t *testing.T) {
	testsize.OneGoroutine(t)
	const n = 50_000
	for _, present := range []uint64{5000, 9998, 10_000} {
		cfg := testConfig()
		cfg.Mix, cfg.Distribution, cfg.FindRate, cfg.Present = PureMixes[0], Latest, 1, present
		s := newShared(&cfg, newMapTarget(), cfg.newPool())
		counts := make([]int, present)
		for i := range cfg.Workers {
			w := newWorker(s, i)
			for range n / cfg.Workers {
				key, known := w.readKey()
				require.True(t, known)
				require.Less(t, key.id, present)
				counts[key.id]++
			}
		}
		newest := 0
		for _, c := range counts[present-uint64(cfg.Workers):] {
			newest += c
		}
		// Ranks are those of the cycle of a worker, which are folded if fewer keys are there.
		assert.InDelta(t, 1/zeta(cfg.Keys/uint64(cfg.Workers), DefaultTheta), float64(newest)/n, 0.01, "the newest key of each worker")
	}
}

func TestEveryDistributionStaysInsideASmallKeySpace(t *testing.T) {
	for _, d := range Distributions {
		for keys := uint64(1); keys <= 7; keys++ {
			for w := range int(min(keys, 3)) {
				puts, reads := newChoosers(d, 0, keys, w, int(min(keys, 3)), testRand())
				for range 200 {
					require.Less(t, puts.next(), keys, "%s of %d keys", d, keys)
					require.Less(t, reads.next(), keys, "%s of %d keys", d, keys)
				}
			}
		}
	}
}

func TestEqualSeedsDrawEqualKeysAndWorkersDiffer(t *testing.T) {
	cfg := testConfig()
	for _, d := range []Distribution{Uniform, Zipfian, ScrambledZipfian, Hotspot} {
		cfg.Distribution = d
		s := newShared(&cfg, newMapTarget(), cfg.newPool())
		a, again, other := newWorker(s, 0), newWorker(s, 0), newWorker(s, 1)
		same := 0
		for range 1000 {
			id := a.puts.next()
			require.Equal(t, id, again.puts.next(), d)
			if id == other.puts.next() {
				same++
			}
		}
		assert.Less(t, same, 500, d)
	}
}

func TestParseDistributionListsWhatThereIs(t *testing.T) {
	d, err := ParseDistribution("ZipFian")
	require.NoError(t, err)
	assert.Equal(t, Zipfian, d)
	_, err = ParseDistribution("normal")
	assert.EqualError(t, err, `unknown distribution "normal"; choose one of uniform, sequential, zipfian, scrambled-zipfian, latest, hotspot`)
}

func BenchmarkChoosers(b *testing.B) {
	for _, d := range Distributions {
		b.Run(string(d), func(b *testing.B) {
			puts, reads := newChoosers(d, 0, 10_000_000, 0, 1, testRand())
			puts.next()
			for range b.N {
				reads.next()
			}
		})
	}
}
