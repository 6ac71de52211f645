// Package load puts the load of many concurrent callers on a service, checks every
// answer, and measures.
//
// It is leaner than internal/workload, which measures engines. There, one operation
// takes microseconds of one thread; here, thousands of callers share two processors
// with the server. A generator with a histogram and a record of its puts for each
// caller would dominate the measurement. The generator's cost is measured before each
// run ([Cost]).
//
// [Closed] has callers that wait for one answer before the next request. [Open] has
// requests that begin by the clock, regardless of earlier ones: its latencies count
// from when a request was due, so that no stall is omitted.
package load
