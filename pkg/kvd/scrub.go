package kvd

import (
	"context"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// ScrubStep is how far a Scrub has come, or a place that it found damaged.
type ScrubStep struct {
	Files       int   // verified so far
	Done, Total int64 // bytes
	Damage      *Damage
}

// Damage is a place in a file of a store that does not hold what was written.
type Damage struct {
	File   string // in the data directory, with slashes
	Kind   string // "table", "values", "log", "manifest", "store" or "clock"
	Offset int64  // -1: the whole file, or not known
	Reason string
	// First and Last bound the keys that cannot be read for it; Last is empty if they are
	// not known.
	First, Last []byte
}

// Scrub has the store verify every checksum of all its files while it is used, and calls told
// a few times a second, for each damaged place, and at the end. Damage is no error of the
// call. The store reads at most rate bytes per second; 0 means no bound. The call lasts until
// the end or until ctx ends; the client's timeout bounds only the wait for its beginning.
func (c *Client) Scrub(ctx context.Context, rate int64, told func(ScrubStep)) error {
	const name = "scrub"
	if told == nil {
		return nilFunc(name)
	}
	in, err := c.enter(ctx, name)
	if err != nil {
		return err
	}
	defer in.leave()
	return failed(name, c.backend.Scrub(ctx, rate, func(s backend.ScrubStep) {
		told(ScrubStep{Files: s.Files, Done: s.Done, Total: s.Total, Damage: (*Damage)(s.Damage)})
	}))
}
