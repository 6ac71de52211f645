// Package testsize tells tests how much to repeat.
//
// The race detector makes a test that is bound by the processor six times as
// expensive. It finds races between goroutines, and whether there are any does not
// depend on how many crash points, faults, damages, seeds or rounds a test goes
// through. scripts/test.sh therefore runs every test that asks this package twice: reduced,
// or left out if it has one goroutine, under the race detector, and whole without it. The
// command in reduced finds these tests.
//
// A package that imports it also has the property tests of rapid reduced likewise, and its garbage
// collected less often.
//
// It is for tests alone.
package testsize

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	_ "pgregory.net/rapid" // defines the flag that init sets
)

// rapidChecks is how many cases rapid draws for a property under the race detector;
// a fifth of its default, as with -short.
const rapidChecks = "20"

// gcPercent is how much garbage there is beside 100 of live memory before it is collected. Tests have
// little live memory and make much garbage, of stores that they open and close: at the default of 100
// the engine's spend a tenth of their processor time on collecting it every 4 MiB.
const gcPercent = 400

// init runs before the command line is parsed, so that -rapid.checks there wins; so does GOGC in the
// environment.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if raceEnabled {
		if err := flag.Set("rapid.checks", rapidChecks); err != nil {
			panic(err)
		}
	}
}

// Reduced reports whether a test takes a sample of what it repeats: with -short, and
// under the race detector.
func Reduced() bool { return raceEnabled || testing.Short() }

// OneGoroutine skips a test under the race detector, and leaves it whole with -short. It is
// for tests of one goroutine that draw or compute much: the race detector has nothing to
// find in them.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if raceEnabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
}
