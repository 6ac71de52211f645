// Package histogram counts durations in log-linear buckets: cheap to record
// from any goroutine, readable while others record, exact to 0.8 %.
//
// It is for measuring, not for exposition: it knows nothing of metric formats.
//
// # Buckets
//
// Every power of two is cut into 128 equal steps, so a bucket is never wider
// than 1/128 of the values in it. Durations below 256 ns have a bucket each;
// everything from 2^42 ns (73 minutes) on shares the last one, and only its
// maximum is kept exactly. The idea is that of HdrHistogram (Tene) at a little
// over two decimal digits.
//
// # Why not hdrhistogram-go
//
// Its counters are plain integers: a reader that wants the last second of a
// running recorder needs a lock, or two histograms per recorder and the
// recorder's help to swap them. A recorder that is stuck inside one long
// operation, which is the moment one wants to look, cannot help. Here the
// counters are atomic and only grow; an interval is the difference of two
// [Snapshot] values, and nobody has to hand over anything.
//
// Cost: one Record is one uncontended atomic add (a few nanoseconds); a
// Histogram is 36 KiB.
//
// # Powers
//
// [Powers] is for what is always counted, in many places: 264 bytes each, and buckets
// of powers of two.
package histogram
