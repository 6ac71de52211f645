package daemon

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// All parts of the budget together are no more than the budget, also for a store in
// memory; and every part can do its work.
func TestThePartsOfTheBudgetAddUp(t *testing.T) {
	for _, dev := range []bool{false, true} {
		for budget := int64(minMemory); budget <= 64<<30; budget = budget * 3 / 2 {
			c := DefaultConfig()
			c.Memory, c.Dev = budget, dev
			require.NoError(t, c.normalize())
			memtables, cache, requests := split(c.dataBudget())
			all := programBytes + runtimeBytes + memtables + cache + requests
			if dev {
				all += c.devDisk()
			}
			assert.LessOrEqual(t, all, budget, "budget %d, in memory: %v", budget, dev)
			assert.Positive(t, min(memtables, cache, requests)-1<<20)
			if !dev {
				assert.GreaterOrEqual(t, requests, 3*int64(kv.DefaultLimits.BatchBytes))
			}
		}
	}
}

// A limit that the user gave the garbage collector is only ever lowered.
func TestTheSmallerLimitOfTheCollectorCounts(t *testing.T) {
	assert.EqualValues(t, 1<<30-programBytes, collectorLimit(1<<30, math.MaxInt64))
	assert.EqualValues(t, 100<<20, collectorLimit(1<<30, 100<<20))
	assert.EqualValues(t, 1<<30-programBytes, collectorLimit(1<<30, 2<<30))
}
