//go:build race

package engine

// raceEnabled: the race detector makes some tests ten times as dear.
const raceEnabled = true
