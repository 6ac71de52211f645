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
	// overloadCallers is the limit of waiting callers: eight times as many. With 65,536
	// the Go scheduler of the generator was the bottleneck.
	overloadCallers = 8 * peakCallers
	// overloadClients share the callers, each with a connection of its own: a single
	// client keeps few frames in flight, so the overload would never reach the server.
	overloadClients = 8
	// patience is how long a caller waits for an answer.
	patience = time.Second
)

// overload returns five times the rate of a closed load, for a given time, between two
// calm parts that last a fifth and two fifths of that time.
func overload(l *load.Closed, capacity float64, over time.Duration) *load.Overload {
	return &load.Overload{
		CalmPerSecond: uint64(capacity*calmFraction) + 1, OverPerSecond: uint64(capacity*overloadFactor) + 1,
		Calm: over / 5, Over: over, Rest: over * 2 / 5,
		MaxCallers: overloadCallers, GetPercent: l.GetPercent, Keys: l.Keys, ValueBytes: l.ValueBytes, Seed: l.Seed,
		Patience: patience,
	}
}
