package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/workload"
)

// snapshotLease is longer than any stall that is worth measuring. Guessed.
const snapshotLease = time.Minute

func (t *engineTarget) Scan(ctx context.Context, start []byte, n int, visit func(key, value []byte) error) error {
	scanner, err := t.engine.Scan(ctx, kv.Range{Start: start}, kv.ScanOptions{Limit: uint64(n)})
	if err != nil {
		return err
	}
	for scanner.Next() {
		item := scanner.Item()
		if err := visit(item.Key, item.Value); err != nil {
			return errors.Join(err, scanner.Close())
		}
	}
	return errors.Join(scanner.Err(), scanner.Close())
}

// Transact waits a little before it begins again, at random and longer each time:
// a rival that is in the log may not be visible yet, and meeting it again is work
// for nothing.
func (t *engineTarget) Transact(ctx context.Context, body func(context.Context, workload.Transaction) error) (int, error) {
	for conflicts := 0; ; conflicts++ {
		err := t.attempt(ctx, body)
		if !errors.Is(err, kv.ErrConflict) {
			return conflicts, err
		}
		select {
		case <-time.After(rand.N(min(conflictBase<<min(conflicts, 16), conflictMax))):
		case <-ctx.Done():
			return conflicts, err
		}
	}
}

// Guessed: a micro-batch, and a few that wait for a slow disk.
const (
	conflictBase = 100 * time.Microsecond
	conflictMax  = 10 * time.Millisecond
)

func (t *engineTarget) attempt(ctx context.Context, body func(context.Context, workload.Transaction) error) error {
	snapshot, err := t.engine.BeginSnapshot(ctx, snapshotLease)
	if err != nil {
		return err
	}
	defer t.engine.ReleaseSnapshot(snapshot.ID)
	tx := &engineTransaction{target: t, at: snapshot.Version}
	if err := body(ctx, tx); err != nil || tx.batch.Len() == 0 {
		return err
	}
	_, err = t.engine.Commit(ctx, &kv.Transaction{ReadVersion: tx.at, Keys: tx.reads, Batch: &tx.batch}, kv.WriteOptions{})
	return err
}

// engineTransaction is one attempt.
type engineTransaction struct {
	target *engineTarget
	at     kv.SeqNum
	reads  [][]byte
	batch  kv.WriteBatch
}

func (t *engineTransaction) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	t.reads = append(t.reads, key)
	return t.target.lookupAt(ctx, key, t.at)
}

func (t *engineTransaction) Put(_ context.Context, key, value []byte) error {
	t.batch.Put(key, value)
	return nil
}

func (t *engineTarget) lookupAt(ctx context.Context, key []byte, at kv.SeqNum) ([]byte, bool, error) {
	lookup := kv.Lookup{Key: key}
	if _, err := t.engine.LookupAt(ctx, []*kv.Lookup{&lookup}, at); err != nil {
		return nil, false, err
	}
	return lookup.Value, lookup.Found, lookup.Err
}

func (t *engineTarget) TakeSnapshot(ctx context.Context) (workload.Snapshot, error) {
	snapshot, err := t.engine.BeginSnapshot(ctx, snapshotLease)
	if err != nil {
		return nil, err
	}
	return &engineSnapshot{t, snapshot}, nil
}

type engineSnapshot struct {
	target   *engineTarget
	snapshot kv.Snapshot
}

func (s *engineSnapshot) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return s.target.lookupAt(ctx, key, s.snapshot.Version)
}

func (s *engineSnapshot) Close() error {
	s.target.engine.ReleaseSnapshot(s.snapshot.ID)
	return nil
}
