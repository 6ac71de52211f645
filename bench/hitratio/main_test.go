package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACacheKeepsWhatFits(t *testing.T) {
	const room = 100
	for _, p := range policies {
		c := p.make(room)
		for b := range room {
			require.False(t, c.use(b), p.name)
		}
		for b := range room {
			require.True(t, c.use(b), p.name)
		}
	}
}

func TestACacheDropsWhatHasNoRoom(t *testing.T) {
	const room, blocks = 10, 1000
	for _, p := range policies {
		c, hits := p.make(room), 0
		for range 10 {
			for b := range blocks {
				if c.use(b) {
					hits++
				}
			}
		}
		require.LessOrEqual(t, hits, 9*room, "%s: of each round but the first, no more than it had kept", p.name)
	}
}

func TestRunPrintsALinePerStreamAndSize(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(&out, 20_000, 4_000, 1_000))
	lines := bytes.Count(out.Bytes(), []byte("\n"))
	require.Equal(t, 1+3*len(streams), lines, out.String())
}
