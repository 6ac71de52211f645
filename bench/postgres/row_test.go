package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRowsAreThoseOfTheArticle(t *testing.T) {
	key, payload := make([]byte, keyBytes), make([]byte, payloadBytes)
	for row, want := range map[uint64][2]string{
		1:           {"00000000000000000001", "1 - *****************************"},
		350_000_000: {"00000000000350000000", "350000000 - *********************"},
		maxRows:     {"00000001000000000000", "1000000000000 - *****************"},
	} {
		putKey(key, row)
		putPayload(payload, row)
		assert.Equal(t, want[0], string(key))
		assert.Equal(t, want[1], string(payload))
		require.NoError(t, checkPayload(payload, row, make([]byte, payloadBytes)))
		require.ErrorIs(t, checkPayload(payload, row+1, make([]byte, payloadBytes)), errWrongAnswer)
		require.ErrorIs(t, checkPayload(payload[:payloadBytes-1], row, make([]byte, payloadBytes)), errWrongAnswer)
	}
}

func TestASequenceDrawsEveryRowAsOftenAsItSays(t *testing.T) {
	s := &sequence{rows: 7, inRow: 3, seed: 1}
	seen := make(map[uint64]int)
	for range 1000 {
		row := s.draw()
		assert.Equal(t, []uint64{row, row}, []uint64{s.draw(), s.draw()})
		seen[row]++
	}
	for row := uint64(1); row <= 7; row++ {
		assert.InDelta(t, 1000/7, seen[row], 60, "row %d", row)
	}
	assert.Len(t, seen, 7)
}

func TestSeedsDecideWhatASequenceDraws(t *testing.T) {
	draw := func(seed uint64) (rows []uint64) {
		s := &sequence{rows: 1 << 40, inRow: 1, seed: seed}
		for range 10 {
			rows = append(rows, s.draw())
		}
		return rows
	}
	assert.Equal(t, draw(1), draw(1))
	assert.NotEqual(t, draw(1), draw(2))
}
