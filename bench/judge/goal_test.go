package judge

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type timed struct {
	who    string
	micros float64
}

func (t timed) Turn() (cell, contestant string) { return "c", t.who }

var micros = &Metric[timed]{Unit: "us", Scale: 1, Of: func(t *timed) float64 { return t.micros }, Less: true}

// TestOfARatioOfLatenciesLessIsBetter: rates have their tests with the engines.
func TestOfARatioOfLatenciesLessIsBetter(t *testing.T) {
	slots := []timed{{"us", 40}, {"quick", 100}, {"slow", 900}, {"us", 80}, {"quick", 100}, {"us", 50}, {"quick", 100}}
	g := Goal[timed]{Row: "row", Cells: []string{"c"}, Metric: micros, Versus: BestOfPeers, Want: 0.5}
	v, ok := g.Judge(slots, "us", func(name string) bool { return name != "us" })
	require.True(t, ok)
	assert.Equal(t, "quick", v.Peer)
	assert.True(t, v.Reached)
	assert.Equal(t, "c", v.Cell)
	figure, want := v.Spelled()
	assert.Equal(t, "0.50x (0.40-0.80)", figure)
	assert.Equal(t, "<= 0.5x", want)

	g.Want = 0.49
	v, ok = g.Judge(slots, "us", func(name string) bool { return name != "us" })
	require.True(t, ok)
	assert.False(t, v.Reached)
}

func TestWhoDidNothingIsNotCompared(t *testing.T) {
	g := Goal[timed]{Row: "row", Cells: []string{"c"}, Metric: micros, Versus: "idle", Want: 0.5}
	_, ok := g.Judge([]timed{{"us", 40}, {"idle", 0}}, "us", nil)
	assert.False(t, ok)
	v, ok := g.Judge([]timed{{"us", 40}, {"idle", 0}, {"us", 40}, {"idle", 80}}, "us", nil)
	require.True(t, ok)
	assert.Equal(t, Spread{Median: 0.5, Least: 0.5, Most: 0.5}, v.Figure)
}
