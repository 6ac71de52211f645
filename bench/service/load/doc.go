// Package load asks a service for what many callers want at once, checks every answer,
// and counts.
//
// It is leaner than internal/workload, which serves engines: there one operation takes
// microseconds of one thread, here thousands of callers share two processors with the
// server, and a generator that keeps a histogram and a memory of its own puts for each
// of them would be most of what is measured. What it takes is measured before each run
// ([Cost]).
//
// [Closed] has callers that wait for one answer before they ask again. [Open] has
// requests that begin by the clock, whatever became of those before: its latencies
// count from when a request should have begun, so that no stall is omitted.
package load
