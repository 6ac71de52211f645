package servicetest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// name is what a caller calls a write.
type name struct{ client, sequence uint64 }

// outcome is what became of a named write.
type outcome struct {
	version   kv.SeqNum
	succeeded bool // of Execute
}

// ForgetNames makes the store forget the names of all writes so far, as a bounded
// window does in time.
func (s *Store) ForgetNames() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.mu.names)
	s.mu.forgotten = s.mu.version
}

// recallLocked looks for what became of a write that was sent before.
func (s *Store) recallLocked(o kv.RequestID) (was outcome, known bool, err error) {
	if !o.Named() {
		return was, false, nil
	}
	if was, known = s.mu.names[name{o.ClientID, o.Sequence}]; known {
		return was, true, nil
	}
	if o.Retried && o.KnownVersion < s.mu.forgotten {
		return was, false, fmt.Errorf("%w: names of writes up to version %d are forgotten", kv.ErrUncertain, s.mu.forgotten)
	}
	return was, false, nil
}

func (s *Store) rememberLocked(o kv.RequestID, became outcome) {
	if o.Named() {
		s.mu.names[name{o.ClientID, o.Sequence}] = became
	}
}

// Write implements server.Store.
func (s *Store) Write(ctx context.Context, writes []*kv.Write) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var lost error
	if s.OnWrite != nil {
		if lost = s.OnWrite(ctx, writes); lost != nil && !answerLost(lost) {
			return lost
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range writes {
		if w.Err == nil { // no hook decided it
			s.writeLocked(w)
		}
	}
	return lost
}

func (s *Store) writeLocked(w *kv.Write) {
	e, found := s.findLocked(w.Op.Key, s.newestLocked())
	if w.Previous != nil {
		budget := w.Previous.Budget
		*w.Previous = kv.Lookup{Key: w.Op.Key, ReadVersion: s.mu.version, Budget: budget}
		if found && !budget.Take(len(e.Value)) {
			w.Err = kv.ErrBudgetSpent
			return
		}
		answer(w.Previous, &e, found)
	}
	was, known, err := s.recallLocked(w.RequestID)
	if known || err != nil {
		w.Version, w.Deduplicated, w.Err = was.version, known, err
		return
	}
	if w.If != nil {
		if w.Err = s.judgeLocked(&kv.Guard{Key: w.Op.Key, Condition: *w.If}); w.Err != nil {
			return
		}
	}
	s.mu.version++
	s.addLocked(&w.Op)
	w.Version = s.mu.version
	s.rememberLocked(w.RequestID, outcome{version: w.Version})
}

func (s *Store) judgeLocked(g *kv.Guard) error {
	e, found := s.findLocked(g.Key, s.newestLocked())
	var l kv.Lookup
	answer(&l, &e, found)
	return g.Evaluate(&l)
}

func (s *Store) judgeAllLocked(guards []kv.Guard) error {
	for i := range guards {
		if err := s.judgeLocked(&guards[i]); err != nil {
			return err
		}
	}
	return nil
}

// Apply implements server.Store.
func (s *Store) Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error) {
	return s.Commit(ctx, &kv.Transaction{Batch: b}, o)
}

// Commit implements server.Store.
func (s *Store) Commit(ctx context.Context, t *kv.Transaction, o kv.WriteOptions) (kv.SeqNum, error) {
	lost := s.beforeApply(ctx, t.Batch)
	if lost != nil && !answerLost(lost) {
		return 0, lost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known, err := s.recallLocked(o.RequestID)
	o.Note(known)
	if !known && err == nil {
		if err = s.validateLocked(t); err == nil {
			err = s.judgeAllLocked(t.Batch.Guards())
		}
		if err == nil {
			was = s.applyLocked(t.Batch, o.RequestID, true)
		}
	}
	if err == nil {
		err = lost
	}
	return was.version, err
}

// validateLocked looks for what was written since a transaction read it.
func (s *Store) validateLocked(t *kv.Transaction) error {
	if t.Epoch != 0 && t.Epoch != Epoch {
		return kv.ErrOtherOpening
	}
	for _, key := range t.Expiring {
		if e, found := s.findLocked(key, view{t.ReadVersion, 0}); !found || e.Expiry != 0 && e.Expiry <= s.mu.now {
			return &kv.ConflictError{Key: bytes.Clone(key)}
		}
	}
	for key, versions := range s.mu.keys {
		if versions[len(versions)-1].Seq <= t.ReadVersion {
			continue
		}
		for _, read := range t.Keys {
			if key == string(read) {
				return &kv.ConflictError{Key: bytes.Clone(read)}
			}
		}
		for _, read := range t.Ranges {
			if read.Contains([]byte(key)) {
				return &kv.ConflictError{Key: []byte(key)}
			}
		}
	}
	return nil
}

// Execute implements server.Store.
func (s *Store) Execute(ctx context.Context, guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (succeeded bool, at kv.SeqNum, err error) {
	lost := s.beforeApply(ctx, then)
	if lost != nil && !answerLost(lost) {
		return false, 0, lost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known, err := s.recallLocked(o.RequestID)
	o.Note(known)
	if !known && err == nil {
		if s.judgeAllLocked(guards) == nil {
			was = s.applyLocked(then, o.RequestID, true)
		} else {
			was = s.applyLocked(otherwise, o.RequestID, false)
		}
	}
	if err == nil {
		err = lost
	}
	return was.succeeded, was.version, err
}

func (s *Store) beforeApply(ctx context.Context, b *kv.WriteBatch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.OnApply != nil {
		return s.OnApply(ctx, b)
	}
	return nil
}

// applyLocked adds the operations of a batch at one version. An empty one leaves
// no trace.
func (s *Store) applyLocked(b *kv.WriteBatch, o kv.RequestID, succeeded bool) outcome {
	if b.Len() == 0 {
		return outcome{s.mu.version, succeeded}
	}
	s.mu.version++
	for i := range b.Ops() {
		s.addLocked(&b.Ops()[i])
	}
	became := outcome{s.mu.version, succeeded}
	s.rememberLocked(o, became)
	return became
}
