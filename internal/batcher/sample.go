package batcher

import "time"

// SampleEvery is of how many batches one has its wait measured: how long the first
// that came for it waited until it was taken. A look at the clock takes some 70 ns and
// a wait needs two, so it costs 9 ns a batch.
const SampleEvery = 16

// micros returns d in whole microseconds.
func micros(d time.Duration) uint64 {
	return uint64(max(d.Round(time.Microsecond), 0) / time.Microsecond)
}
