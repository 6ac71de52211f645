package service

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/internal/kv"
)

// writeCopies is how often the bytes of a write are in memory while it is under way: in
// the request, in the record, and in the frame of the log. Memtables have a budget of
// their own.
const writeCopies = 3

// waitingBytes is what requests that have come in part may have of an account.
func waitingBytes(account, largest int64) int64 {
	return max(account/4, min(2*largest, account/3), largest+largest/dataFrameBytes*dataFrameCost)
}

const (
	// dataFrameCost is what the transport holds for a part of a request beside its
	// bytes, however few these are. Guessed.
	dataFrameCost = 256
	// dataFrameBytes is how much clients put into a part of a long request.
	dataFrameBytes = 16 << 10
)

// requestBytes is what a request by unary call holds until it is answered, but for what
// it reads.
func requestBytes(m method, size int) int64 {
	if kindOf(m) == writes {
		return writeCopies * int64(size)
	}
	return int64(size)
}

// readWithin has do read within a budget. While there is no memory for what it reads,
// nothing of it counts: it waits for memory and is done again.
func (s *Server) readWithin(ctx context.Context, b *kv.ReadBudget, limit int, do func() error) error {
	for {
		b.Reset(limit)
		if err := do(); err != nil || b.Short() == 0 {
			return err
		}
		if err := b.AwaitAnew(ctx); err != nil {
			return s.noMemory(err)
		}
	}
}

// noMemory translates the error of a call that waited for memory.
func (s *Server) noMemory(err error) error {
	if refused, ok := errors.AsType[*kv.OverloadError](err); ok {
		s.counters.shed(shedByBytes)
		return overloaded(shedNames[shedByBytes], refused.RetryAfter)
	}
	return err
}
