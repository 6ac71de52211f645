package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/workload"
)

// keyBytes is the length of a key: its number in decimal with leading zeros.
const keyBytes = 16

// dataset is the entries that every engine holds: the keys with the numbers from 0 up
// to Keys. For scans, the first and last byte of each value identify its key, and the
// rest is random; for point reads, package workload verifies the value.
type dataset struct {
	Keys       int    `json:"keys"`
	ValueBytes int    `json:"valueBytes"`
	Order      string `json:"order"`           // of the load: one of those below
	Point      bool   `json:"point,omitempty"` // for point reads
	// Singly loads each entry by a put of its own, and not in batches.
	Singly bool `json:"singly,omitempty"`
}

const (
	orderRandom  = "random"
	orderSorted  = "sorted"
	orderStrided = "strided" // spread over all keys like random, but without memory for a permutation
)

// A value has a first and a last byte, and is so small that no store separates it from
// its key unless it is configured to.
const (
	minValueBytes = 2
	maxValueBytes = 64 << 10
)

func (d dataset) validate() error {
	switch {
	case d.Keys < 1:
		return fmt.Errorf("%d keys, want at least 1", d.Keys)
	case d.ValueBytes < minValueBytes || d.ValueBytes > maxValueBytes:
		return fmt.Errorf("values of %d bytes, want %d to %d", d.ValueBytes, minValueBytes, maxValueBytes)
	case d.Point && d.ValueBytes < workload.MinValueBytes:
		return fmt.Errorf("values of %d bytes, want at least %d, which make them verifiable", d.ValueBytes, workload.MinValueBytes)
	case d.Order != orderRandom && d.Order != orderSorted && d.Order != orderStrided:
		return fmt.Errorf("load order %q, want %s, %s or %s", d.Order, orderRandom, orderSorted, orderStrided)
	}
	return nil
}

// A Load has loadBatch entries, unless they are so large that it has loadBatchBytes: large
// enough that the cost of a call does not matter, and within the batch limit of every
// store.
const (
	loadBatch      = 1000
	loadBatchBytes = 4 << 20
)

// load passes all entries to put, in batches and in the order of the data set. put
// borrows them.
func (d dataset) load(put func([]peers.Entry) error) error {
	var verifiable *workload.Loader
	if d.Point {
		verifiable = workload.NewLoader(d.ValueBytes, 1)
	}
	random := rand.NewChaCha8([32]byte{1})
	numbers := rand.New(random)
	order := d.ordered(numbers)
	size := min(loadBatch, loadBatchBytes/(keyBytes+d.ValueBytes))
	batch := make([]peers.Entry, size)
	for i := range batch {
		batch[i] = peers.Entry{Key: make([]byte, keyBytes), Value: make([]byte, d.ValueBytes)}
	}
	for from := 0; from < d.Keys; from += size {
		n := min(size, d.Keys-from)
		for i := range n {
			e, number := &batch[i], order(from+i)
			if d.Point {
				verifiable.Fill(e.Key, e.Value, uint64(number))
				continue
			}
			putKey(e.Key, number)
			if _, err := random.Read(e.Value); err != nil {
				return err
			}
			d.mark(e.Value, number)
		}
		if err := put(batch[:n]); err != nil {
			return err
		}
	}
	return nil
}

// mark makes a value that of a number.
func (d dataset) mark(value []byte, number int) {
	value[0], value[d.ValueBytes-1] = byte(number), byte(number>>8)
}

// check returns an error unless the value may be that of a number.
func (d dataset) check(key, value []byte, number int) error {
	if len(value) != d.ValueBytes || !d.Point && (value[0] != byte(number) || value[len(value)-1] != byte(number>>8)) {
		return fmt.Errorf("wrong answer: key %q has a value of another one", key)
	}
	return nil
}

// ordered returns a function that maps a place in the load to a number.
func (d dataset) ordered(numbers *rand.Rand) func(place int) int {
	switch d.Order {
	case orderRandom:
		shuffled := numbers.Perm(d.Keys)
		return func(i int) int { return shuffled[i] }
	case orderStrided:
		step := stride(d.Keys)
		return func(i int) int { return int(uint64(i) * uint64(step) % uint64(d.Keys)) }
	}
	return func(i int) int { return i }
}

// stride returns a number near the golden section of n that is coprime to n: its
// multiples visit all numbers below n, and successive ones are far apart.
func stride(n int) int {
	s := max(int(0.6180339887*float64(n)), 1)
	for gcd(s, n) != 1 {
		s++
	}
	return s
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// walk scans at most limit entries and checks that they have the numbers from first on,
// in steps of one up or down, and matching values; of a value for point reads it checks
// only the length. It returns how many it saw.
//
// It costs about 5 ns an entry for every engine.
func (d dataset) walk(scan func(peers.Visit) error, first, step, limit int) (seen int, err error) {
	w := walk{dataset: d, number: first, step: step, limit: limit}
	putKey(w.want[:], first)
	err = scan(w.visit)
	if w.err != nil {
		err = w.err
	}
	return w.seen, err
}

// walk checks the entries of one scan.
type walk struct {
	dataset
	want         [keyBytes]byte
	number, step int
	seen, limit  int
	err          error // the first wrong answer
}

func (w *walk) visit(key, value []byte) bool {
	if !bytes.Equal(key, w.want[:]) {
		w.err = fmt.Errorf("wrong answer: entry %d of the scan has key %q, want %q", w.seen, key, w.want[:])
		return false
	}
	if w.err = w.check(key, value, w.number); w.err != nil {
		return false
	}
	w.seen++
	w.number += w.step
	if w.step > 0 {
		increment(w.want[:])
	} else {
		decrement(w.want[:])
	}
	return w.seen < w.limit
}

func putKey(dst []byte, number int) {
	for i := keyBytes - 1; i >= 0; i-- {
		dst[i] = '0' + byte(number%10)
		number /= 10
	}
}

// increment turns a key into that of the next number, decrement into that of the
// previous one. The first number follows the last.
func increment(key []byte) {
	for i := keyBytes - 1; i >= 0; i-- {
		if key[i] < '9' {
			key[i]++
			return
		}
		key[i] = '0'
	}
}

func decrement(key []byte) {
	for i := keyBytes - 1; i >= 0; i-- {
		if key[i] > '0' {
			key[i]--
			return
		}
		key[i] = '9'
	}
}
