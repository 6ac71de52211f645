// Package histogram counts durations in log-linear buckets: cheap to record
// from any goroutine, readable while others record, exact to 0.8 %.
//
// It is for measuring, not for exposition: it knows no metric formats.
//
// # Buckets
//
// Every power of two is divided into 128 equal steps, so a bucket is never wider
// than 1/128 of the values in it. Durations below 256 ns have a bucket each;
// all durations from 2^42 ns (73 minutes) on share the last bucket, of which only the
// maximum is exact. The idea is that of HdrHistogram (Tene) at a little over two decimal
// digits.
//
// # Why not hdrhistogram-go
//
// Its counters are plain integers: a reader that wants the last second of a
// running recorder needs a lock, or two histograms per recorder that the recorder
// swaps on request. A recorder that is blocked in a long operation, which is when the
// reader is most interested, cannot swap. Here the counters are atomic and only grow; an
// interval is the difference of two [Snapshot] values, and recorders do not take part.
//
// Cost: one Record is one uncontended atomic add (a few nanoseconds); a
// Histogram is 36 KiB. A Snapshot is 1 KiB for each power of two of which it counts
// something, and reading a Histogram takes time only for these.
//
// # Powers
//
// [Powers] is for counters that always run, in many places: 264 bytes each, and buckets
// of powers of two.
package histogram
