// Package testwait bounds how long tests wait for what must happen.
//
// A test that gives up after some seconds fails on a loaded machine although
// nothing is wrong. Tests therefore wait as long as their binary may run (go test
// -timeout), less the time in which a failing test reports.
//
// It is for tests alone.
package testwait

import (
	"context"
	"flag"
	"testing"
	"time"
)

const (
	// unlimited is the wait where the binary has no timeout, as under -timeout 0.
	unlimited = time.Hour
	// maxReport is the most time kept for a failing test to report and clean up
	// before the binary is ended; of a short timeout it is a tenth.
	maxReport = 30 * time.Second
	// minPoll and maxPoll bound the pause between two looks of Until, which is a tenth of the
	// time waited so far.
	minPoll, maxPoll = time.Millisecond, 20 * time.Millisecond
)

var started = time.Now()

// Deadline returns until when a test may wait.
//
// It goes by the flag -test.timeout, as testing.T.Deadline does, and not by a
// *testing.T, since benchmarks have no Deadline and a synctest bubble forbids the
// call. In a bubble, whose clock begins in the year 2000, it is decades ahead.
func Deadline() time.Time { return deadline(started, timeoutFlag()) }

func deadline(start time.Time, timeout time.Duration) time.Time {
	if timeout == 0 {
		timeout = unlimited
	}
	return start.Add(timeout - min(maxReport, timeout/10))
}

func timeoutFlag() time.Duration {
	f := flag.Lookup("test.timeout")
	if f == nil {
		return 0 // not a test binary: a server of tests that runs by itself
	}
	return f.Value.(flag.Getter).Get().(time.Duration)
}

// Left returns how long a test may wait from now on; at least a millisecond.
func Left() time.Duration { return max(time.Until(Deadline()), time.Millisecond) }

// Context returns a context that ends at Deadline or when t ends, whichever is
// first. Cleanups of t that are registered after it, or make their own, can use it.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithDeadline(context.Background(), Deadline())
	t.Cleanup(cancel)
	return ctx
}

// Until returns once condition reports true, and fails t if that does not happen
// by Deadline.
func Until(t testing.TB, condition func() bool, what ...string) {
	t.Helper()
	begun, end := time.Now(), Deadline()
	for !condition() {
		if time.Now().After(end) {
			t.Fatalf("still not true when the test binary has to end: %v", what)
		}
		time.Sleep(min(max(time.Since(begun)/10, minPoll), maxPoll))
	}
}

// Doubling calls try with the duration d, then with 2d, 4d and so on, until it reports true,
// and fails t if that does not happen by Deadline. It is for tests in which a timeout must
// end at one place: on a slow machine a short one ends before the code gets there.
func Doubling(t testing.TB, d time.Duration, try func(d time.Duration) bool) {
	t.Helper()
	for end := Deadline(); !try(d); d *= 2 {
		if time.Now().After(end) {
			t.Fatalf("not even with a timeout of %v when the test binary has to end", d)
		}
	}
}

// Receive returns the next value of c, the zero value once c is closed. It reports
// false, and marks t as failed, if neither comes by Deadline. Any goroutine may
// call it.
func Receive[T any](t testing.TB, c <-chan T, what ...string) (value T, ok bool) {
	t.Helper()
	timer := time.NewTimer(Left())
	defer timer.Stop()
	select {
	case value = <-c:
		return value, true
	case <-timer.C:
		t.Errorf("nothing came before the test binary has to end: %v", what)
		return value, false
	}
}
