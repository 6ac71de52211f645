// Package loadgen runs workers against a store and measures them: one runner for every
// benchmark of kvd and of other stores.
//
// A [Run] has workers that each do one operation after the other. A worker is a closed
// loop, which begins an operation when its previous one ended, or shares a [Timetable] with
// others, which makes an open loop: operations are due by the clock, and their latency counts
// from when they were due. A stall is then charged to every operation that was due
// during it, not only to those that had begun. Those that were due but had not begun when the run
// ended are counted as missed, with how long they had waited. [Arrivals] is the open loop for
// overloads: requests arrive by the clock however many are under way, and what cannot
// be sent in time is counted.
//
// What an operation is, and whether its answer is right, is up to the Step of a worker;
// package workload has those of kvd's benchmarks.
//
// # How it measures
//
// Steps count in a [Tally] of their worker, or of a few workers. Its counters are atomic
// and only grow. The reporter reads them once a second without involving the workers, so
// it shows a stall while the stall lasts. The figures of a warm-up or an interval are
// differences of counters.
//
// The cost of the generator itself is measured by [BestRound] against a target that does
// nothing, and reported as a share of the processor time; above a tenth the report
// warns.
package loadgen
