package service

import (
	"context"

	"github.com/kvd-db/kvd/internal/event"
)

// Scrubber is a Store that can verify its files while it serves.
type Scrubber interface {
	// Scrub verifies every checksum of every file, and tells how far it has come and what is
	// damaged, which is no error. It reads at most rate bytes per second; 0: no bound. A second
	// one at a time is kv.ErrOverloaded.
	Scrub(ctx context.Context, rate int64, told func(ScrubStep)) error
}

// ScrubStep is how far a scrub has come, or a place that it found damaged.
type ScrubStep struct {
	Files       int
	Done, Total int64 // bytes
	Damage      *event.Damage
}

// Scrub verifies the files of the store: see Scrubber.
func (s *Server) Scrub(ctx context.Context, rate int64, told func(ScrubStep)) error {
	store, ok := s.store.Store.(Scrubber)
	if !ok {
		return Invalidf("this store has no files to verify")
	}
	return store.Scrub(ctx, rate, told)
}
