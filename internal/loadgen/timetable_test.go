package loadgen

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTimetableHasNoDrift(t *testing.T) {
	p := pace{start: 5, rate: 3}
	assert.EqualValues(t, 5, p.due(0))
	assert.EqualValues(t, 5+333_333_333, p.due(1))
	assert.EqualValues(t, 5+666_666_666, p.due(2))
	assert.EqualValues(t, 5+1_000_000_000, p.due(3))
	year := uint64(365 * 24 * 3600)
	fast := pace{rate: 999_999_999}
	assert.EqualValues(t, year*1e9, fast.due(year*999_999_999), "no overflow within a year")
}
