package daemon

import (
	"context"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/frameapi"
	"github.com/kvd-db/kvd/internal/service/grpcapi"
)

// Protocols returns what the server speaks. Of those that a client knows, the first one
// serves it.
func Protocols() []service.NewProtocol {
	return []service.NewProtocol{frameapi.New, grpcapi.New}
}

// Store returns the engine as the server wants it.
func Store(e *engine.Engine) service.Store { return store{e} }

type store struct{ *engine.Engine }

// Scan wraps what the engine returns into the server's interface.
func (s store) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (service.Scanner, error) {
	scanner, err := s.Engine.Scan(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return scanner, nil
}
