package compaction

// Policy says when to merge. The zero value of a field is its default.
type Policy struct {
	// DeltaFanIn is how many adjacent deltas of similar size become one.
	// Default 4, at least 2. More means fewer bytes written and more deltas to
	// search.
	DeltaFanIn int
	// BaseRatio: the oldest delta is merged into the base when it is worth the base
	// divided by this. Default 4. More means less dead space and more bytes
	// written.
	BaseRatio int
	// Overwrites: the oldest delta is also merged into the base when so many mean entries of the
	// base as it has entries are worth that, since each may hide a larger one.
	Overwrites bool
	// MaxDeltas bounds the deltas, whatever their sizes. Default 32: with 3 deltas per
	// factor of 4, the largest would be a million times the smallest.
	MaxDeltas int
	// DrainBytes is about how much one CompactBase reads. It reads more only if
	// one table of the delta overlaps more. Default 128 MiB.
	DrainBytes uint64
	// MaxGarbage is the percentage of the bytes in value files that may be garbage before
	// tables are merged only to empty some. Default 50. Less means less space and more values
	// rewritten.
	MaxGarbage int
}

// AtRest returns the policy for a store with little load. It bounds the stored bytes that
// are not live to about a quarter of the live ones, at the price of more writing: see
// "At rest" in the package comment.
func (p Policy) AtRest() Policy {
	p = p.withDefaults()
	p.BaseRatio = max(p.BaseRatio, restBaseRatio)
	p.MaxGarbage = min(p.MaxGarbage, restGarbage)
	p.Overwrites = true
	return p
}

const (
	restBaseRatio = 16
	restGarbage   = 10
)

func (p Policy) withDefaults() Policy {
	if p.DeltaFanIn == 0 {
		p.DeltaFanIn = 4
	}
	if p.BaseRatio == 0 {
		p.BaseRatio = 4
	}
	if p.MaxDeltas == 0 {
		p.MaxDeltas = 32
	}
	if p.DrainBytes == 0 {
		p.DrainBytes = 128 << 20
	}
	if p.MaxGarbage == 0 {
		p.MaxGarbage = 50
	}
	p.DeltaFanIn = max(p.DeltaFanIn, 2)
	p.MaxDeltas = max(p.MaxDeltas, 1)
	return p
}
