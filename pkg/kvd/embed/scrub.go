package embed

import (
	"context"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Scrub implements backend.Backend.
func (l *local) Scrub(ctx context.Context, rate int64, told func(backend.ScrubStep)) error {
	err := l.engine.Scrub(ctx, rate, func(s engine.ScrubStep) {
		step := backend.ScrubStep{Files: s.Files, Done: s.Done, Total: s.Total}
		if d := s.Damage; d != nil {
			step.Damage = &backend.Damage{File: d.File, Kind: d.Kind, Offset: d.Offset, Reason: d.Reason, First: d.First, Last: d.Last}
		}
		told(step)
	})
	if err != nil {
		return failure(err)
	}
	return nil
}
