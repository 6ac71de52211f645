package servicetest

import (
	"context"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
)

// LimitsOnly is a store for tests that reach nothing but its limits.
type LimitsOnly struct {
	service.Store
	L kv.Limits
}

// Limits implements service.Store.
func (s LimitsOnly) Limits() kv.Limits { return s.L }

// Instant answers at once and allocates nothing: what is measured is the server and its
// transport.
type Instant struct{ LimitsOnly }

// NewInstant returns an Instant with the default limits.
func NewInstant() Instant { return Instant{LimitsOnly{L: kv.DefaultLimits}} }

// InstantValue is what every key of an Instant has.
var InstantValue = make([]byte, 100)

// Now implements service.Store.
func (Instant) Now() uint64 { return 1 }

// Lookup implements service.Store.
func (Instant) Lookup(_ context.Context, reads []*kv.Lookup) error {
	for _, r := range reads {
		r.Found, r.Version, r.ReadVersion, r.Value = true, 1<<40, 1<<40, InstantValue
	}
	return nil
}

// LookupCached implements service.Store.
func (s Instant) LookupCached(reads []*kv.Lookup) ([]*kv.Lookup, error) {
	return nil, s.Lookup(context.Background(), reads)
}

// Write implements service.Store.
func (Instant) Write(_ context.Context, writes []*kv.Write) error {
	for _, w := range writes {
		w.Version = 1 << 40
	}
	return nil
}
