package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// coldRead returns how long a read of 4 KiB takes that only the disk can serve.
func coldRead(dir string, bytes int) (took time.Duration, err error) {
	const block = 4 << 10
	f, err := os.Create(filepath.Join(dir, "cold"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	rng := rand.NewChaCha8([32]byte{1})
	b := make([]byte, bytes)
	if _, err := rng.Read(b); err != nil {
		return 0, err
	}
	if _, err := f.Write(b); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	for _, advice := range []int{unix.FADV_DONTNEED, unix.FADV_RANDOM} {
		if err := unix.Fadvise(int(f.Fd()), 0, 0, advice); err != nil {
			return 0, err
		}
	}
	order := rand.New(rng).Perm(bytes / block)
	times := make([]time.Duration, min(len(order), 1000))
	for i := range times {
		begin := time.Now()
		if _, err := f.ReadAt(b[:block], int64(order[i])*block); err != nil {
			return 0, err
		}
		times[i] = time.Since(begin)
	}
	return median(times), nil
}
