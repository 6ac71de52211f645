package results

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStagesAreMeansOfBands(t *testing.T) {
	var calls []StagedCall
	for i := range 1000 {
		call := StagedCall{5: 100, 7: int64(i)}
		if i == 999 {
			call[7] = 1e6
		}
		calls = append(calls, call)
	}
	calls[0], calls[999] = calls[999], calls[0]
	s := NewStages("put", calls)
	require.Len(t, s.Bands, 5)
	assert.Equal(t, StageBand{From: 0, To: 0.5, Count: 500, Nanos: StagedCall{5: 100, 7: 249}}, s.Bands[0])
	assert.Equal(t, StageBand{From: 0.999, To: 1, Count: 1, Nanos: StagedCall{5: 100, 7: 1e6}}, s.Bands[4])
	assert.Len(t, NewStages("get", calls[:1]).Bands, 1)
	assert.Empty(t, NewStages("get", nil).Bands)
	assert.Len(t, StageNames, StageCount)
}

func TestCountersAreReadBack(t *testing.T) {
	r := Run{Activity: &Activity{LogSyncs: 3, OpsPerReadBatch: 1.5}}
	want := r.Counters()
	data, err := json.Marshal(r.Activity)
	require.NoError(t, err)
	r.Activity = nil
	assert.Nil(t, r.Counters())
	require.NoError(t, json.Unmarshal(data, &r.Activity))
	assert.Equal(t, want, r.Counters())
	r.Activity = map[string]any{"logSyncs": 0}
	assert.Equal(t, new(Activity), r.Counters(), "a run that did nothing")
	r.Activity = map[string]any{"syncs": 3}
	assert.Nil(t, r.Counters(), "of another program")
}
