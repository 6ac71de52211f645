package main

import (
	"errors"
	"os"
	"time"
)

// diskRateBytes is enough that a cache of the disk hardly counts, and takes a few
// seconds.
const diskRateBytes = 1 << 30

const diskRateChunk = 1 << 20

// diskRate returns the bytes a second that one sequential writer gets to the disk
// of a directory, over so many and the sync at the end included.
func diskRate(dir string, bytes int64) (rate float64, err error) {
	f, err := os.CreateTemp(dir, "rate.")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	chunk := make([]byte, diskRateChunk)
	for i := range chunk {
		chunk[i] = byte(i * i >> 3)
	}
	begin := time.Now()
	for range bytes / diskRateChunk {
		if _, err := f.Write(chunk); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return float64(bytes) / time.Since(begin).Seconds(), nil
}
