package batcher

import "time"

// SampleEvery: the wait of one in this many batches is measured, from the arrival of
// its first item until it is taken. Reading the clock costs some 70 ns and a
// measurement needs two reads, so sampling costs 9 ns a batch.
const SampleEvery = 16

// micros returns d in whole microseconds.
func micros(d time.Duration) uint64 {
	return uint64(max(d.Round(time.Microsecond), 0) / time.Microsecond)
}
