// Package load puts the load of many concurrent callers on a service, checks every
// answer, and measures.
//
// Package loadgen runs the callers and measures them. A caller here is leaner than a
// worker of internal/workload, which measures engines: there one operation takes
// microseconds of one thread; here thousands of callers share two processors with the
// server, and a record of its puts for each caller would dominate the measurement. The
// generator's cost is measured before each run ([Cost]).
//
// [Closed] has callers that wait for one answer before the next request. [Overload] has
// requests that begin by the clock, regardless of earlier ones: its latencies count
// from when a request was due, so that no stall is omitted.
package load
