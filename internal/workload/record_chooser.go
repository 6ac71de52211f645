package workload

import "math/rand/v2"

// recordChooser draws the number of one of n records. n may grow from one draw
// to the next. It belongs to one worker.
type recordChooser interface {
	next(n uint64) uint64
}

// popular draws by the scrambled zipfian distribution. Its ranks are spread over
// all records that are there or expected: a draw of one that is not there yet is
// repeated, so that an insertion changes nothing about which records are
// popular. YCSB does the same.
type popular struct {
	scrambled scrambled
}

func newPopular(expected uint64, rng *rand.Rand) *popular {
	return &popular{scrambled{zipf: newZipf(expected, rng), keys: expected}}
}

// mostRedraws bounds the search for a record in a tiny key space, where the hash
// may lead to none.
const mostRedraws = 64

func (p *popular) next(n uint64) uint64 {
	var id uint64
	for range mostRedraws {
		if id = p.scrambled.next(); id < n {
			return id
		}
	}
	return id % n
}

// newest draws by the zipfian distribution backward from the record that was
// inserted last.
type newest struct {
	zipf *zipf
}

func newNewest(records uint64, rng *rand.Rand) *newest { return &newest{newZipf(records, rng)} }

func (l *newest) next(n uint64) uint64 {
	l.zipf.grow(n)
	return n - 1 - l.zipf.next()
}
