package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// row is what one codec makes of all pieces of a corpus.
type row struct {
	codec  string
	stored int // bytes

	encode, decode time.Duration // in memory; zero if there is nothing to do
	read           time.Duration // from the page cache, verified and decoded
}

// sampleBytes is how much of a corpus, about, becomes the dictionary: less than a
// hundredth, so it does not matter that it is among the pieces that are measured.
const sampleBytes = 32 << 10

// measure returns a row per codec.
func measure(dir string, pieces [][]byte, rounds int) (rows []row, err error) {
	var sample []byte
	for i := 0; i < len(pieces) && len(sample) < sampleBytes; i++ {
		sample = append(sample, pieces[i]...)
	}
	c, err := newCodecs(sample[:min(len(sample), sampleBytes)])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var shelves []*shelf
	for i, codec := range c.all {
		s, err := newShelf(filepath.Join(dir, fmt.Sprint("shelf", i)), codec, pieces)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		shelves = append(shelves, s)
	}
	order := rand.New(rand.NewPCG(3, 3)).Perm(len(pieces))
	type times struct{ encode, decode, read []time.Duration }
	took := make([]times, len(shelves))
	for range rounds {
		for i, s := range shelves {
			encode := threadTime(func() { s.each(order, s.encode) })
			decode := threadTime(func() { s.each(order, s.decode) })
			read := threadTime(func() { s.each(order, s.read) })
			if s.err != nil {
				return nil, fmt.Errorf("%s: %w", s.codec.name, s.err)
			}
			t := &took[i]
			t.encode, t.decode, t.read = append(t.encode, encode), append(t.decode, decode), append(t.read, read)
		}
	}
	for i, s := range shelves {
		r := row{codec: s.codec.name, stored: s.bytes, read: median(took[i].read)}
		if s.codec.encode != nil {
			r.encode = median(took[i].encode)
		}
		if s.encoded > 0 {
			r.decode = median(took[i].decode)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// threadTime returns the processor time that f takes on this thread: what others do on
// the machine hardly changes it.
func threadTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := threadClock()
	f()
	return threadClock() - begin
}

func threadClock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(t.Nano())
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
