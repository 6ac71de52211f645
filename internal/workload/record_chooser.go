package workload

import "math/rand/v2"

// recordChooser draws the number of one of n records. n may grow between draws. For one
// worker only.
type recordChooser interface {
	next(n uint64) uint64
}

// popular draws by the scrambled zipfian distribution. Its ranks are spread over all
// present and expected records. A draw of a record that is not yet present is repeated,
// so that insertions do not change which records are popular. YCSB does the same.
type popular struct {
	scrambled scrambled
}

func newPopular(expected uint64, theta float64, rng *rand.Rand) *popular {
	return &popular{scrambled{ranks: newRanks(expected, theta, rng), keys: expected}}
}

// mostRedraws bounds the search in a tiny key space, where the hash may never give a
// record.
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

// newest draws by the zipfian distribution, backward from the record that was inserted
// last.
type newest struct {
	ranks ranks
}

func newNewest(records uint64, theta float64, rng *rand.Rand) *newest {
	return &newest{newRanks(records, theta, rng)}
}

func (l *newest) next(n uint64) uint64 {
	l.ranks.grow(n)
	return n - 1 - l.ranks.next()
}
