package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// Written is what an atomic write returns.
type Written struct {
	Version      kv.SeqNum
	Deduplicated bool // an earlier attempt was applied, at Version, and this one was not
}

// Apply performs mutations as one batch: all or none.
func (s *Server) Apply(ctx context.Context, c *Call, mutations []Mutation, o kv.WriteOptions) (w Written, err error) {
	if err := checkOptions(o.Durability, &o.RequestID); err != nil {
		return w, err
	}
	batch, err := s.batchOf(&c.Caller, mutations)
	if err != nil {
		return w, err
	}
	if err := batch.Check(s.limits); err != nil {
		return w, Invalid(err)
	}
	release, err := s.reserveCopies(ctx, c, batch)
	if err != nil {
		return w, err
	}
	defer release()
	o.Deduplicated, o.Stages = &w.Deduplicated, c.enter()
	w.Version, err = s.store.Apply(ctx, batch, o)
	c.leave()
	return w, err
}

// ApplyEach performs mutations one by one. The error of one is in it, and means that it
// was not performed, unless it is kv.ErrUncertain. It waits for admission once.
func (s *Server) ApplyEach(ctx context.Context, c *Call, mutations []Mutation, o kv.WriteOptions) ([]kv.Write, error) {
	err := checkOptions(o.Durability, &o.RequestID)
	switch {
	case err != nil:
		return nil, err
	case len(mutations) == 0:
		return nil, Invalidf("no mutations")
	case len(mutations) > 1 && o.RequestID.Named():
		return nil, Invalidf("a name is of one write: %d mutations with one name must be atomic", len(mutations))
	}
	if err := s.CheckMutations(len(mutations)); err != nil {
		return nil, err
	}
	writes := make([]kv.Write, len(mutations))
	accepted := make([]*kv.Write, 0, len(mutations))
	for i := range mutations {
		m, w := &mutations[i], &writes[i]
		if m.Op.Kind == kv.KindRangeDelete {
			w.Err = Invalidf("a range is deleted by an atomic request, or by DeleteRange")
			continue
		}
		w.Op, w.Durability, w.RequestID = m.Op, o.Durability, o.RequestID
		if w.Err = s.CheckWrite(&c.Caller, w, &m.Condition, m.TTLMillis, false); w.Err != nil {
			continue
		}
		if m.Condition.Kind != kv.Unconditional {
			w.If = &m.Condition
		}
		accepted = append(accepted, w)
	}
	if len(accepted) == 0 {
		return writes, nil
	}
	return writes, s.Write(ctx, c, accepted)
}

// Transaction is what a client has read and wants to write.
type Transaction struct {
	ReadVersion, Epoch uint64
	Elsewhere          bool     // as in kv.Transaction
	Keys, Expiring     [][]byte // as in kv.Transaction
	Ranges             []kv.Range
	Mutations          []Mutation
}

// Commit applies a transaction, if nothing that it read has been written since.
func (s *Server) Commit(ctx context.Context, c *Call, t *Transaction, o kv.WriteOptions) (w Written, err error) {
	if err := checkOptions(o.Durability, &o.RequestID); err != nil {
		return w, err
	}
	txn, err := s.transactionOf(&c.Caller, t)
	if err != nil {
		return w, err
	}
	release, err := s.reserveCopies(ctx, c, txn.Batch)
	if err != nil {
		return w, err
	}
	defer release()
	o.Deduplicated, o.Stages = &w.Deduplicated, c.enter()
	w.Version, err = s.store.Commit(ctx, txn, o)
	c.leave()
	s.counters.transaction(err)
	return w, err
}

// transactionOf checks a transaction. What it read and what it writes have no more
// bytes together than one batch may have.
func (s *Server) transactionOf(caller *Caller, t *Transaction) (*kv.Transaction, error) {
	at, err := VersionOf(t.ReadVersion)
	if err != nil {
		return nil, err
	}
	batch, err := s.batchOf(caller, t.Mutations)
	if err != nil {
		return nil, err
	}
	txn := &kv.Transaction{ReadVersion: at, Epoch: t.Epoch, Elsewhere: t.Elsewhere, Keys: t.Keys, Expiring: t.Expiring, Ranges: t.Ranges, Batch: batch}
	bytes := batch.Bytes()
	for _, keys := range [][][]byte{t.Keys, t.Expiring} {
		for i, key := range keys {
			if err := s.mayRead(caller, key); err != nil {
				return nil, inPart(err, "key %d that the transaction read", i)
			}
			bytes += len(key)
		}
	}
	for i, read := range t.Ranges {
		err := s.checkRange(read)
		if err == nil {
			err = s.mayReadRange(caller, read)
		}
		if err != nil {
			return nil, inPart(err, "range %d that the transaction read", i)
		}
		bytes += len(read.Start) + len(read.End)
	}
	if err := txn.Check(s.limits); err != nil {
		return nil, Invalid(err)
	}
	if bytes > s.limits.BatchBytes {
		return nil, TooLarge("the transaction has %d bytes of what it read and writes, limit is %d", bytes, s.limits.BatchBytes)
	}
	return txn, nil
}

// Execution is guards and what to do if all of them hold, and else.
type Execution struct {
	Guards     []kv.Guard
	Then, Else []Mutation
}

// Execute applies Then if all guards hold, else Else, and returns whether they held.
func (s *Server) Execute(ctx context.Context, c *Call, e *Execution, o kv.WriteOptions) (succeeded bool, w Written, err error) {
	if err := checkOptions(o.Durability, &o.RequestID); err != nil {
		return false, w, err
	}
	then, otherwise, err := s.checkExecution(&c.Caller, e)
	if err != nil {
		return false, w, err
	}
	release, err := s.reserveCopies(ctx, c, s.larger(then, otherwise))
	if err != nil {
		return false, w, err
	}
	defer release()
	o.Deduplicated, o.Stages = &w.Deduplicated, c.enter()
	succeeded, w.Version, err = s.store.Execute(ctx, e.Guards, then, otherwise, o)
	c.leave()
	s.counters.transaction(err)
	return succeeded, w, err
}

// checkExecution checks guards and both lists, which have no more operations and
// bytes together than one batch may have.
func (s *Server) checkExecution(caller *Caller, e *Execution) (then, otherwise *kv.WriteBatch, err error) {
	ops, bytes := 0, 0
	for i := range e.Guards {
		g := &e.Guards[i]
		if err := errors.Join(checkConditionKind(&g.Condition), s.limits.CheckKey(g.Key), g.Check(s.limits)); err != nil {
			return nil, nil, Invalid(fmt.Errorf("guard %d: %w", i, err))
		}
		if err := s.mayRead(caller, g.Key); err != nil {
			return nil, nil, inPart(err, "guard %d", i)
		}
		ops, bytes = ops+1, bytes+len(g.Key)+len(g.Value)
	}
	lists := [2]*kv.WriteBatch{}
	for i, mutations := range [2][]Mutation{e.Then, e.Else} {
		batch, err := s.batchOf(caller, mutations)
		if err != nil {
			return nil, nil, err
		}
		if len(batch.Guards()) > 0 {
			return nil, nil, Invalidf("a mutation has a precondition; what decides is the guards")
		}
		if batch.Len() > 0 {
			if err := batch.Check(s.limits); err != nil {
				return nil, nil, Invalid(err)
			}
		}
		lists[i] = batch
		ops, bytes = ops+batch.Len(), bytes+batch.Bytes()
	}
	if err := s.limits.CheckBatch(ops, bytes); err != nil {
		return nil, nil, Invalid(err)
	}
	return lists[0], lists[1], nil
}
