package service

import (
	"bytes"
	"fmt"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// batchOf makes one batch of mutations, their preconditions being its guards. Its
// limits are left to the caller.
func (s *Server) batchOf(mutations []*kvdpb.Mutation) (*kv.WriteBatch, error) {
	if err := s.limits.CheckBatch(len(mutations), 0); err != nil {
		return nil, invalid(err)
	}
	batch := new(kv.WriteBatch)
	for i, m := range mutations {
		if err := s.addMutation(batch, m); err != nil {
			return nil, invalid(fmt.Errorf("mutation %d: %w", i, err))
		}
	}
	return batch, nil
}

func (s *Server) addMutation(batch *kv.WriteBatch, m *kvdpb.Mutation) error {
	change := changeOf(m)
	condition, err := conditionOf(&change.Condition)
	if err != nil {
		return err
	}
	if r, ok := m.GetOp().(*kvdpb.Mutation_DeleteRange); ok {
		if condition.Kind != kv.Unconditional {
			return fmt.Errorf("%w: a range delete takes no precondition", kv.ErrInvalidArgument)
		}
		doomed, err := s.rangeToDelete(r.DeleteRange)
		batch.DeleteRange(doomed.Start, doomed.End)
		return err
	}
	op, err := s.opOf(&change)
	if err != nil {
		return err
	}
	batch.Add(op)
	if condition.Kind != kv.Unconditional {
		batch.Require(kv.Guard{Key: op.Key, Condition: condition})
	}
	return nil
}

// changeOf returns a mutation of one key as a frame would have it; its kind is 0
// if it is of none, or none that this version knows.
func changeOf(m *kvdpb.Mutation) frame.Op {
	op := frame.Op{Condition: frameCondition(m.GetPrecondition())}
	switch m := m.GetOp().(type) {
	case *kvdpb.Mutation_Put:
		op.Kind, op.Key, op.Value, op.TTLMillis = frame.Put, m.Put.GetKey(), m.Put.GetValue(), m.Put.GetTtlMs()
	case *kvdpb.Mutation_Delete:
		op.Kind, op.Key = frame.Delete, m.Delete
	}
	return op
}

// rangeToDelete checks a range to delete. A request without a range is refused,
// so that a field left out does not delete everything.
func (s *Server) rangeToDelete(r *kvdpb.Range) (kv.Range, error) {
	if r == nil {
		return kv.Range{}, invalidf("the range to delete is missing; an empty range message is all keys")
	}
	asked := rangeOf(r)
	return asked, s.checkBounds(asked)
}

func rangeOf(r *kvdpb.Range) kv.Range { return kv.Range{Start: r.GetStart(), End: r.GetEnd()} }

// checkRange is kv.Limits.CheckRange with a message that has no keys in it.
func (s *Server) checkRange(r kv.Range) error {
	if err := s.checkBounds(r); err != nil {
		return err
	}
	if len(r.End) > 0 && bytes.Compare(r.Start, r.End) > 0 {
		return invalidf("the range ends before it starts")
	}
	return nil
}

func (s *Server) checkBounds(r kv.Range) error {
	if n := max(len(r.Start), len(r.End)); n > s.limits.KeyBytes {
		return tooLarge("a bound of the range has %d bytes, limit is %d", n, s.limits.KeyBytes)
	}
	return nil
}
