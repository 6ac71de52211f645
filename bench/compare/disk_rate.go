package main

import (
	"errors"
	"os"
	"time"
)

// diskRateBytes is so large that a cache of the disk hardly matters; writing it takes a
// few seconds.
const diskRateBytes = 1 << 30

const diskRateChunk = 1 << 20

// diskRate returns the bytes a second of one sequential writer in a directory,
// including the sync at the end.
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
