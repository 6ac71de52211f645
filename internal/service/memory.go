package service

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/internal/kv"
)

// WriteCopies is how many copies of a write are in memory while it is under way: in the
// request, in the record, and in the frame of the log. Memtables have a budget of their own.
const WriteCopies = 3

// waitingBytes returns how much of an account requests may hold that have arrived in part. The
// largest one has half of its bytes twice while its memory grows.
func waitingBytes(account, largest int64) int64 {
	return max(account/4, min(2*largest, account/3), largest+largest/2, largest+largest/partBytes*PartCost)
}

const (
	// PartCost is what a transport holds for a part of a request beside its
	// bytes, however few these are. Guessed.
	PartCost = 256
	// partBytes is how much clients put into a part of a long request.
	partBytes = 16 << 10
)

// RequestBytes is what a request holds until it is answered, except for what it reads.
func (m *Method) RequestBytes(size int) int64 {
	if m.kind == Writes {
		return WriteCopies * int64(size)
	}
	return int64(size)
}

// reserveCopies waits for the memory of what a batch takes in the record and in the frame of the log
// beyond what the request has reserved for its bytes, and returns what gives it back.
func (s *Server) reserveCopies(ctx context.Context, c *Call, b *kv.WriteBatch) (release func(), err error) {
	bytes := (WriteCopies - 1) * int64(b.Takes(s.limits)-b.Bytes())
	if bytes == 0 {
		return func() {}, nil
	}
	if err := s.Memory().Wait(ctx, bytes, c.Held+c.Budget.Held()); err != nil {
		return nil, s.NoMemory(err)
	}
	return func() { s.Memory().Give(bytes) }, nil
}

// larger returns the batch that takes more.
func (s *Server) larger(a, b *kv.WriteBatch) *kv.WriteBatch {
	if a.Takes(s.limits) > b.Takes(s.limits) {
		return a
	}
	return b
}

// readWithin has do read within a budget. If there is too little memory for what it reads,
// the result is dropped, and do runs again once there is memory.
func (s *Server) readWithin(ctx context.Context, b *kv.ReadBudget, limit int, do func() error) error {
	for {
		b.Reset(limit)
		if err := do(); err != nil || b.Short() == 0 {
			return err
		}
		if err := b.AwaitAnew(ctx); err != nil {
			return s.NoMemory(err)
		}
	}
}

// NoMemory translates the error of a call that waited for memory.
func (s *Server) NoMemory(err error) error {
	if refused, ok := errors.AsType[*kv.OverloadError](err); ok {
		s.counters.shed(ShedByBytes)
		return overloaded(shedNames[ShedByBytes], refused.RetryAfter)
	}
	return err
}
