package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
)

func TestASuccessorIsTheNextInOrderForEveryNumberOfRecords(t *testing.T) {
	for n := uint64(1); n < 300; n++ {
		all := sorted(n)
		for i, p := range all {
			next, more := p.successor(n)
			require.Equal(t, i < len(all)-1, more, "behind %d of %d", i, n)
			if more {
				require.Equal(t, all[i+1], next, "behind %d of %d", i, n)
			}
		}
	}
	n := uint64(1)<<40 + 12345
	next, more := positionOf(n - 1).successor(n)
	require.True(t, more)
	assert.Less(t, next.id(), n)
	assert.Greater(t, next, positionOf(n-1))
}

func TestARecordKeyTellsItsPositionAndSortsByIt(t *testing.T) {
	previous := ""
	for _, p := range []position{0, 1, 9, 10, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64} {
		key := string(p.key())
		assert.Equal(t, fmt.Sprintf("user%020d", uint64(p)), key)
		assert.Greater(t, key, previous)
		parsed, ok := parsePosition([]byte(key))
		require.True(t, ok)
		assert.Equal(t, p, parsed)
		assert.Equal(t, p, positionOf(p.id()))
		previous = key
	}
	for _, key := range []string{"", "user", "user0000000000000000000", "user000000000000000000000", "usex00000000000000000000",
		"user0000000000000000000a", "user18446744073709551616", "user99999999999999999999"} {
		_, ok := parsePosition([]byte(key))
		assert.False(t, ok, key)
	}
}

func FuzzParsePosition(f *testing.F) {
	f.Add([]byte("user00000000000000000007"))
	f.Add([]byte("user18446744073709551615"))
	f.Add([]byte("user18446744073709551616"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, key []byte) {
		if p, ok := parsePosition(key); ok {
			require.Equal(t, key, p.key())
		}
	})
}

func TestARecordTellsItsChanges(t *testing.T) {
	rng := testRand()
	for _, size := range []int{MinRecordBytes, MinRecordBytes + 1, 1000} {
		value := make([]byte, size)
		newValuePool(size, 0, 1).fillRecord(value, 7, newVersion(3, 4), 1<<40, rng.Uint64())
		v, changes, err := checkRecord(value, 7)
		require.NoError(t, err)
		assert.Equal(t, newVersion(3, 4), v)
		assert.EqualValues(t, 1<<40, changes)
		for i := range value {
			value[i] ^= 1
			_, _, err := checkRecord(value, 7)
			require.ErrorIs(t, err, ErrWrongAnswer, "byte %d", i)
			value[i] ^= 1
		}
		_, _, err = checkRecord(value, 8)
		require.ErrorContains(t, err, "record 8 (key user01152921504606846976) has the value of record 7 (key user16140901064495857664)")
	}
	short := make([]byte, MinValueBytes)
	newValuePool(len(short), 0, 1).fill(short, 7, 1, 0)
	_, _, err := checkRecord(short, 7)
	require.ErrorContains(t, err, "every record has at least 28")
}

func TestInsertionsCountUpToTheFirstThatIsUnderway(t *testing.T) {
	i := newInsertions(10)
	var begun []uint64
	for range 1000 {
		begun = append(begun, i.begin())
	}
	assert.EqualValues(t, 10, begun[0])
	open := make(map[uint64]bool)
	for _, id := range begun {
		open[id] = true
	}
	for _, n := range testRand().Perm(len(begun)) {
		i.end(begun[n])
		delete(open, begun[n])
		want := uint64(1010)
		for id := range open {
			want = min(want, id)
		}
		require.Equal(t, want, i.acknowledged.Load())
	}
	assert.Empty(t, i.early)
}

func TestGrowingZipfianIsTheSameAsANewOne(t *testing.T) {
	z := newZipf(1, DefaultTheta, testRand())
	n := uint64(1)
	for _, more := range []uint64{1, 1, 1, 7, 100, 9_999, 10_001, 0, 1, 500_000} {
		n += more
		z.grow(n)
		fresh := newZipf(n, DefaultTheta, nil)
		require.InEpsilon(t, fresh.zeta, z.zeta, 1e-11, "%d ranks", n)
		require.InDelta(t, fresh.eta, z.eta, 1e-11, "%d ranks", n)
		require.Equal(t, fresh.n, z.n)
	}
}

func TestNewestFollowsTheInsertions(t *testing.T) {
	testsize.OneGoroutine(t)
	const n, draws = 200_000, 30_000
	l := newNewest(100, 0, testRand())
	for _, records := range []uint64{100, 101, 5000, n} {
		first, within := 0, 0
		for range draws {
			id := l.next(records)
			require.Less(t, id, records)
			if id == records-1 {
				first++
			}
			if id >= records-50 {
				within++
			}
		}
		assert.InDelta(t, 1/zeta(records, DefaultTheta), float64(first)/draws, 0.015, "the newest of %d", records)
		assert.InDelta(t, zeta(50, DefaultTheta)/zeta(records, DefaultTheta), float64(within)/draws, 0.03, "the newest 50 of %d", records)
	}
}

func TestInsertionsDoNotChangeWhoIsPopular(t *testing.T) {
	const expected, before, after, n = 2000, 1600, 1800, 100_000
	count := func(records uint64) []int {
		p := newPopular(expected, 0, testRand())
		counts := make([]int, records)
		for range n {
			counts[p.next(records)]++
		}
		return counts
	}
	first, second := count(before), count(after)
	inserted := 0
	for _, c := range second[before:] {
		inserted += c
	}
	assert.Greater(t, inserted, n/100, "what was inserted is read")
	popular := 0
	for id, c := range first {
		if c < n/400 {
			continue // drawn so often that chance hardly matters
		}
		popular++
		kept := float64(n-inserted) / n // the others share the rest
		assert.InEpsilon(t, float64(c)*kept, second[id], 0.3, "record %d", id)
	}
	assert.Greater(t, popular, 15)
}

func TestPopularFindsARecordInTheSmallestKeySpace(t *testing.T) {
	for expected := uint64(1); expected < 20; expected++ {
		for n := uint64(1); n <= expected; n++ {
			p := newPopular(expected, 0, testRand())
			for range 100 {
				require.Less(t, p.next(n), n)
			}
		}
	}
}

func TestCoreWorkloadsAreThoseOfTheArticle(t *testing.T) {
	var names []string
	for _, c := range Cores {
		names = append(names, c.Name)
		require.Equal(t, 100, c.Read+c.Update+c.Insert+c.Scan+c.Modify, c.Name)
		probabilities := []int{c.Read, c.Update, c.Insert, c.Scan, c.Modify}
		rng := testRand()
		drawn := make([]int, coreKinds)
		for range 100_000 {
			drawn[c.draw(rng)]++
		}
		var counts []int
		var expected []float64
		for i, percent := range probabilities {
			if percent == 0 {
				require.Zero(t, drawn[i], "%s: %s", c.Name, coreOperations[i])
				continue
			}
			counts = append(counts, drawn[i])
			expected = append(expected, float64(percent)/100)
		}
		if len(counts) == 1 {
			continue
		}
		requireFits(t, counts, func(i int) float64 { return expected[i] })
	}
	assert.Equal(t, []string{"A", "B", "C", "F", "D", "E"}, names)
	assert.Equal(t, Core{Name: "A", Read: 50, Update: 50}, core(t, "a"))
	assert.Equal(t, Core{Name: "B", Read: 95, Update: 5}, core(t, "b"))
	assert.Equal(t, Core{Name: "C", Read: 100}, core(t, "c"))
	assert.Equal(t, Core{Name: "D", Read: 95, Insert: 5, Latest: true}, core(t, "d"))
	assert.Equal(t, Core{Name: "E", Scan: 95, Insert: 5}, core(t, "e"))
	assert.Equal(t, Core{Name: "F", Read: 50, Modify: 50}, core(t, "f"))
	_, err := ParseCore("G")
	assert.EqualError(t, err, `unknown core workload "G"; choose of A, B, C, D, E and F`)
}

func TestExpectedRecordsLeaveRoomForInsertions(t *testing.T) {
	e, c := core(t, "E"), core(t, "C")
	assert.EqualValues(t, 1000, c.expected(1000, 5000))
	assert.EqualValues(t, 1500, e.expected(1000, 5000), "twice 5 % of the operations")
	assert.EqualValues(t, 2000, e.expected(1000, 0))
}

func TestALedgerKeepsItsCountsWhenItGrows(t *testing.T) {
	var l ledger
	l.grow(2)
	l.add(1)
	l.add(1)
	l.grow(1)
	l.grow(5)
	l.add(4)
	assert.Equal(t, []uint64{0, 2, 0, 0, 1, 0}, []uint64{l.count(0), l.count(1), l.count(2), l.count(3), l.count(4), l.count(5)})
	l.reset(1)
	l.reset(99)
	assert.Zero(t, l.count(1))
}

func BenchmarkRecordChoosers(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]recordChooser{"popular": newPopular(1_100_000, 0, rng), "newest": newNewest(1_000_000, 0, rng)} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				c.next(1_000_000 + uint64(i/20))
			}
		})
	}
}
