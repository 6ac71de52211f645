package transport

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// GetFirst implements backend.Backend: it is a Get in a frame. The epoch is the one that the server of
// the frameConn had told before the frame was sent. So if the server opens its store anew, what was
// read before has another epoch. As long as no server has told its epoch, and for a key that is too large
// for a frame, GetFirst reads nothing.
func (c *Network) GetFirst(ctx context.Context, key []byte, t *backend.Timings) (backend.Answer, error) {
	op := frame.Op{Kind: frame.Get, Key: key}
	if !c.epochs.Load() || c.travelsAlone(&op) {
		return backend.Answer{}, nil
	}
	tries := c.attempts(ctx)
	tries.timer = startTimer(t)
	for {
		a, f := c.attempt(ctx, &op, &tries)
		if f == nil || errors.Is(f.err, backend.ErrNotFound) {
			tries.succeeded()
			return a, nil
		}
		if err := tries.again(ctx, f); err != nil {
			return answer{}, err
		}
	}
}

// learnEpoch notes the epoch of the store that answered by a frameConn. An epoch of 0, and a nil
// frameConn, tell nothing.
func (c *Network) learnEpoch(via *frameConn, epoch uint64) {
	if via != nil && epoch != 0 && via.epoch.Load() != epoch {
		via.epoch.Store(epoch)
		c.epochs.Store(true)
	}
}
