package workload

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMixesAreThoseOfTheArticles(t *testing.T) {
	assert.Equal(t, []Mix{
		{"PUT_HEAVY", 90, 5, 5},
		{"GET_HEAVY", 10, 5, 85},
		{"DELETE_HEAVY", 45, 45, 10},
		{"BALANCED", 33, 33, 34},
	}, Mixes)
	for _, m := range slices.Concat(Mixes, PureMixes) {
		require.NoError(t, m.validate())
	}
}

func TestMixIsDrawnInItsProportions(t *testing.T) {
	for _, m := range Mixes {
		rng := testRand()
		counts := make([]int, kindCount)
		for range 100_000 {
			counts[m.draw(rng)]++
		}
		percent := []int{m.Put, m.Delete, m.Get}
		requireFits(t, counts, func(i int) float64 { return float64(percent[i]) / 100 })
	}
}

func TestParseMixTakesAnyCaseAndListsWhatThereIs(t *testing.T) {
	m, err := ParseMix("get_Heavy")
	require.NoError(t, err)
	assert.Equal(t, Mixes[1], m)
	m, err = ParseMix("read_only")
	require.NoError(t, err)
	assert.Equal(t, Mix{Name: "READ_ONLY", Get: 100}, m)
	m, err = ParseMix("Write_Only")
	require.NoError(t, err)
	assert.Equal(t, Mix{Name: "WRITE_ONLY", Put: 100}, m)
	_, err = ParseMix("ODD")
	assert.EqualError(t, err, `unknown mix "ODD"; choose one of PUT_HEAVY, GET_HEAVY, DELETE_HEAVY, BALANCED, READ_ONLY, WRITE_ONLY`)
}
