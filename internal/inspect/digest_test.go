package inspect

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

type pair struct{ key, value string }

func digestOf(pairs ...pair) string {
	var d Digest
	for _, p := range pairs {
		d.Add([]byte(p.key), []byte(p.value))
	}
	return d.String()
}

func TestDigestDependsOnThePairsNotOnTheirOrder(t *testing.T) {
	pairs := []pair{{"a", "1"}, {"b", ""}, {"c", "\x00"}, {"d", "4"}}
	want := digestOf(pairs...)
	for range 10 {
		rand.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		assert.Equal(t, want, digestOf(pairs...))
	}
}

func TestDigestTellsNeighboursApart(t *testing.T) {
	seen := map[string]int{}
	for i, pairs := range [][]pair{
		{}, {{"", ""}}, {{"ab", "c"}}, {{"a", "bc"}}, {{"abc", ""}},
		{{"a", "1"}, {"b", "2"}}, {{"a", "2"}, {"b", "1"}},
		{{"a", "1"}, {"a", "1"}}, {{"a", "1"}},
	} {
		d := digestOf(pairs...)
		other, dup := seen[d]
		assert.False(t, dup, "sets %d and %d", i, other)
		seen[d] = i
	}
}

// Scripts store digests and compare them years later.
func TestDigestKeepsItsValue(t *testing.T) {
	var d Digest
	assert.Equal(t, "00000000000000000000000000000000", d.String())
	d.Add([]byte("key"), []byte("value"))
	d.Add([]byte{0, 0xff}, nil)
	assert.EqualValues(t, 2, d.Count())
	assert.Equal(t, goldenDigest, d.String())
}

// goldenDigest was computed independently, by a few lines of Python.
const goldenDigest = "5536bdb9ab2b1d8502d524471afa2a45"
