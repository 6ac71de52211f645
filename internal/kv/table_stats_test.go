package kv

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExpiredIsExactAtTheEnds(t *testing.T) {
	even := TableStats{Expiring: 80, Expiries: []uint64{100, 200, 300, 400, 500}}
	skewed := TableStats{Expiring: 80, Expiries: []uint64{100, 100, 100, 100, 1 << 40}}
	for _, c := range []struct {
		stats TableStats
		now   uint64
		want  uint64
	}{
		{TableStats{}, 1 << 60, 0},
		{TableStats{Expiring: 1, Expiries: []uint64{100}}, 99, 0},
		{TableStats{Expiring: 1, Expiries: []uint64{100}}, 100, 1},
		{even, 99, 0}, {even, 100, 0}, {even, 150, 10}, {even, 200, 20}, {even, 499, 79}, {even, 500, 80}, {even, 1 << 60, 80},
		{TableStats{Expiring: 3, Expiries: []uint64{1, 1 << 63}}, 1<<63 - 1, 2},
		{skewed, 99, 0}, {skewed, 100, 60}, {skewed, 1<<40 - 1, 79}, {skewed, 1 << 40, 80},
	} {
		assert.Equal(t, c.want, c.stats.Expired(c.now), "%v at %d", c.stats, c.now)
	}
}
