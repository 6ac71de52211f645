package main

import (
	"time"

	"github.com/kvd-db/kvd/bench/service/load"
)

const (
	overloadFactor = 5
	// calmFraction of what a service can do leaves it nearly idle.
	calmFraction = 0.1
	// peakCallers find out what the service takes.
	peakCallers = 1024
	// overloadCallers wait at once at most: eight times as many. With 65,536 the Go
	// scheduler of the generator was what had too much to do.
	overloadCallers = 8 * peakCallers
	// overloadClients share them, each with a connection of its own: one client alone
	// keeps few frames under way, and what is too much never leaves it.
	overloadClients = 8
	// patience is how long a caller waits for an answer.
	patience = time.Second
)

// overload is five times what a service did of a closed load, for so long, between two
// calm parts that last a fifth and two fifths of that.
func overload(l *load.Closed, capacity float64, over time.Duration) *load.Open {
	return &load.Open{
		CalmPerSecond: uint64(capacity*calmFraction) + 1, OverPerSecond: uint64(capacity*overloadFactor) + 1,
		Calm: over / 5, Over: over, Rest: over * 2 / 5,
		MaxCallers: overloadCallers, GetPercent: l.GetPercent, Keys: l.Keys, ValueBytes: l.ValueBytes, Seed: l.Seed,
		Patience: patience,
	}
}
