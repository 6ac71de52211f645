// Package workload puts a measured, verified load on any key/value store: the
// operation mixes of the LSM-tree articles, several ways of choosing keys, and
// a runner that reports throughput and latency as they unfold.
//
// Beside the mixes of the articles, which [Run] runs, a [Bench] has the core
// workloads of YCSB, transactions, and comparisons of trials that take turns.
//
// It knows no store: a [Target] is four methods, and a few more if it can scan
// ([Scanner]), has transactions ([Transactor]) or snapshots ([Snapshotter]). cmd/kvbench and the
// comparison with other stores bring the targets. It imports the standard
// library and internal/histogram alone, so that both modules can use it.
//
// # What is measured
//
// A fixed number of workers each do one operation after the other ([Run]). By
// default the loop is closed: the next operation begins when the one before
// ended. With Config.OpsPerSecond it is open: operations are due by the clock,
// and latency counts from when they were due, so that a stall is charged to all
// who would have come during it and not only to those who were there.
//
// Counters only grow and are atomic; the reporter reads them once a second
// without asking the workers for anything, so a worker that is stuck in a stall
// is seen as such while it lasts. A warm-up and an interval are differences.
//
// What the generator itself costs is measured before each run and reported as
// a share of the processor time; above a tenth the summary warns.
//
// # What is verified
//
// Every answer, always. A benchmark that does not look at the answers measures
// how fast a store can be wrong.
//
//  1. A value names its key and the put that wrote it, and has a checksum.
//  2. A worker that reads a key of its own last put gets that put's value, or
//     that of another worker, never an older one of its own.
//  3. A key that was put is there, unless a delete of it may have come between.
//  4. A key that was never put is not there.
//
// All workers share one key space, so that they meet on hot keys as callers
// do. Points 2 and 3 are therefore one-sided: they accuse no correct store, but
// may miss a fault where several workers write one key at a time.
//
// A [Bench] verifies more, as its records are never deleted:
//
//  5. A record whose insertion was acknowledged is there for every later read.
//  6. A scan has all of them, in order, and nothing that is no record.
//  7. A record counts its read-modify-writes. A read finds no fewer than were
//     acknowledged before, and at the end exactly so many: no update is lost, and
//     none happens twice.
//  8. What a snapshot holds does not change while it lives.
//
// # Keys and the find rate
//
// Keys are numbers of 16 decimal digits. A put draws its key from the
// distribution. A get or a delete draws, with the probability FindRate, a key
// that is known to have been put, and otherwise one of 17 bytes that never is.
// Known are the worker's own puts, of which it remembers 10,000, and all of a
// preload. Both the nominal rate and the one that came out are reported: other
// workers delete keys too, and an empty store knows none. The original
// benchmark reported the nominal rate and was off by up to 43 points.
//
// The records of a Bench have keys as YCSB spells them, and its distributions:
// see Core and position.
//
// # The report
//
// One [Line] an interval, with the names of the original benchmark first, and a
// [Summary] at the end; both are made for encoding/json.
package workload
