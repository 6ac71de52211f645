package daemon

import (
	"context"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/frameapi"
	"github.com/kvd-db/kvd/internal/service/grpcapi"
)

// Protocols returns the protocols of the server, in order of preference.
func Protocols() []service.NewProtocol {
	return []service.NewProtocol{frameapi.New, grpcapi.New}
}

// Store adapts the engine to the interface of the server.
func Store(e *engine.Engine) service.Store { return store{e} }

type store struct{ *engine.Engine }

// Checkpoint adapts the engine's Checkpoint to the interface of the server.
func (s store) Checkpoint(ctx context.Context, rate int64) (service.Checkpoint, error) {
	c, err := s.Engine.Checkpoint(ctx, rate)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Scrub adapts the engine's Scrub to the interface of the server.
func (s store) Scrub(ctx context.Context, rate int64, told func(service.ScrubStep)) error {
	return s.Engine.Scrub(ctx, rate, func(step engine.ScrubStep) { told(service.ScrubStep(step)) })
}

// Scan adapts the engine's Scanner to the interface of the server.
func (s store) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (service.Scanner, error) {
	scanner, err := s.Engine.Scan(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return scanner, nil
}
