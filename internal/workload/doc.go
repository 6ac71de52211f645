// Package workload puts a measured and verified load on any key/value store. It has the
// operation mixes of the LSM-tree articles, the core workloads of YCSB, transactions and
// snapshots, and several distributions of keys.
//
// [Run] runs the mixes of the articles. A [Bench] runs the core workloads of YCSB,
// transactions, and comparisons of alternating trials.
//
// It knows no store: a [Target] has four methods, and more if it can scan ([Scanner])
// or has transactions ([Transactor]) or snapshots ([Snapshotter]). cmd/kvbench and the
// comparison with other stores provide the targets. It imports only the standard
// library and internal/loadgen, so that both modules can use it.
//
// Package loadgen runs the workers and measures them; this package says what they do.
//
// # What is verified
//
// Every answer is verified. A benchmark that does not check the answers measures how
// fast a store can be wrong.
//
//  1. A value contains its key, the put that wrote it, and a checksum.
//  2. A worker that reads a key that it has put gets the value of its own last put, or
//     a value of another worker, never an older one of its own.
//  3. A key that was put is present, unless a delete of it may have happened since.
//  4. A key that was never put is absent.
//
// In a store of earlier runs (Config.Reused), a value that this run has not put is checked by
// point 1. A worker may omit all checks (Config.Unverified); what they cost is measured
// before each run, and reported.
//
// All workers share one key space, so that they contend for hot keys as callers do.
// Points 2 and 3 are therefore one-sided: they accuse no correct store, but may miss a
// fault where several workers write one key concurrently.
//
// A [Bench] verifies more, as its records are never deleted:
//
//  5. A record whose insertion was acknowledged is found by every later read.
//  6. A scan returns all such records, in order, and nothing that is not a record.
//  7. A record counts its read-modify-writes. A read finds at least as many as were
//     acknowledged before, and Audit finds exactly as many: no update is lost, and
//     none is applied twice.
//  8. The contents of a snapshot do not change while it lives.
//
// # Keys and the find rate
//
// Keys are numbers of 16 decimal digits. A put draws its key from the distribution. A
// get or a delete draws, with the probability FindRate, a key that is known to have
// been put, and otherwise one of 17 bytes that never is. The known keys are the
// worker's own puts, of which it remembers 10,000, and all of a preload. The report has
// both the nominal and the actual rate: other workers delete keys too, and an empty
// store has no known keys. The original benchmark reported only the nominal rate, which
// was off by up to 43 points.
//
// The records of a Bench use the keys and the distributions of YCSB: see Core and
// position.
//
// # The report
//
// The report has one [Line] for each interval, with the names of the original benchmark
// first, and a [Summary] at the end; both are made for encoding/json.
package workload
