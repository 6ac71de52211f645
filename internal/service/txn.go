package service

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// BeginSnapshot implements the method of TxnService.
func (s *Server) BeginSnapshot(ctx context.Context, req *kvdpb.BeginSnapshotRequest) (*kvdpb.BeginSnapshotResponse, error) {
	conn := connectionOf(ctx)
	if !s.leases.enter(conn) {
		s.counters.shed(shedBySnapshots)
		return nil, tooManySnapshots
	}
	snapshot, err := s.store.BeginSnapshot(ctx, lease(req.LeaseMs))
	if err != nil {
		s.leases.shares.leave(conn)
		return nil, s.failure(methodBeginSnapshot, err)
	}
	s.leases.begun(conn, snapshot.ID, snapshot.Lease)
	return &kvdpb.BeginSnapshotResponse{
		SnapshotId: snapshot.ID, Version: uint64(snapshot.Version), LeaseMs: leaseMillis(snapshot.Lease), Epoch: snapshot.Epoch,
	}, nil
}

// KeepSnapshot implements the method of TxnService.
func (s *Server) KeepSnapshot(ctx context.Context, req *kvdpb.KeepSnapshotRequest) (*kvdpb.KeepSnapshotResponse, error) {
	if !s.leases.mayKeep(req.SnapshotId) {
		return nil, s.failure(methodKeepSnapshot, fmt.Errorf("%w: others need it", kv.ErrVersionGone))
	}
	granted, err := s.store.KeepSnapshot(req.SnapshotId, lease(req.LeaseMs))
	if err != nil {
		return nil, s.failure(methodKeepSnapshot, err)
	}
	s.leases.kept(connectionOf(ctx), req.SnapshotId, granted)
	return &kvdpb.KeepSnapshotResponse{LeaseMs: leaseMillis(granted)}, nil
}

// ReleaseSnapshot implements the method of TxnService.
func (s *Server) ReleaseSnapshot(_ context.Context, req *kvdpb.ReleaseSnapshotRequest) (*kvdpb.ReleaseSnapshotResponse, error) {
	s.store.ReleaseSnapshot(req.SnapshotId)
	s.leases.ended(req.SnapshotId)
	return new(kvdpb.ReleaseSnapshotResponse), nil
}

func lease(millis uint32) time.Duration { return time.Duration(millis) * time.Millisecond }

// leaseMillis rounds down: a client must not count on more than it has.
func leaseMillis(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), math.MaxUint32)) }

// Commit implements the method of TxnService.
func (s *Server) Commit(ctx context.Context, req *kvdpb.CommitRequest) (*kvdpb.CommitResponse, error) {
	o, err := batchOptions(req.Options)
	if err != nil {
		return nil, s.failure(methodCommit, err)
	}
	txn, err := s.transactionOf(req)
	if err != nil {
		return nil, s.failure(methodCommit, err)
	}
	var m kvdpb.ResponseMeta
	t := timingsOf(ctx)
	o.Deduplicated, o.Stages = &m.Deduplicated, t.enter()
	version, err := s.store.Commit(ctx, txn, o)
	t.leave()
	s.counters.transaction(err)
	if err != nil {
		return nil, s.failure(methodCommit, err)
	}
	m.Version = uint64(version)
	return &kvdpb.CommitResponse{Meta: &m}, nil
}

// transactionOf checks a transaction. What it read and what it writes have no more
// bytes together than one batch may have.
func (s *Server) transactionOf(req *kvdpb.CommitRequest) (*kv.Transaction, error) {
	at, err := versionOf(req.ReadVersion)
	if err != nil {
		return nil, err
	}
	batch, err := s.batchOf(req.Mutations)
	if err != nil {
		return nil, err
	}
	txn := &kv.Transaction{ReadVersion: at, Epoch: req.Epoch, Keys: req.ReadKeys, Expiring: req.ExpiringKeys, Batch: batch}
	bytes := batch.Bytes()
	for _, key := range req.ReadKeys {
		bytes += len(key)
	}
	for _, key := range req.ExpiringKeys {
		bytes += len(key)
	}
	for i, r := range req.ReadRanges {
		read := rangeOf(r)
		if err := s.checkRange(read); err != nil {
			return nil, invalid(fmt.Errorf("range %d that the transaction read: %w", i, err))
		}
		txn.Ranges = append(txn.Ranges, read)
		bytes += len(read.Start) + len(read.End)
	}
	if err := txn.Check(s.limits); err != nil {
		return nil, invalid(err)
	}
	if bytes > s.limits.BatchBytes {
		return nil, tooLarge("the transaction has %d bytes of what it read and writes, limit is %d", bytes, s.limits.BatchBytes)
	}
	return txn, nil
}

// Execute implements the method of TxnService.
func (s *Server) Execute(ctx context.Context, req *kvdpb.ExecuteRequest) (*kvdpb.ExecuteResponse, error) {
	o, err := batchOptions(req.Options)
	if err != nil {
		return nil, s.failure(methodExecute, err)
	}
	guards, then, otherwise, err := s.executionOf(req)
	if err != nil {
		return nil, s.failure(methodExecute, err)
	}
	var m kvdpb.ResponseMeta
	t := timingsOf(ctx)
	o.Deduplicated, o.Stages = &m.Deduplicated, t.enter()
	succeeded, version, err := s.store.Execute(ctx, guards, then, otherwise, o)
	t.leave()
	s.counters.transaction(err)
	if err != nil {
		return nil, s.failure(methodExecute, err)
	}
	m.Version = uint64(version)
	return &kvdpb.ExecuteResponse{Succeeded: succeeded, Meta: &m}, nil
}

// executionOf checks guards and both lists, which have no more operations and
// bytes together than one batch may have.
func (s *Server) executionOf(req *kvdpb.ExecuteRequest) (guards []kv.Guard, then, otherwise *kv.WriteBatch, err error) {
	ops, bytes := 0, 0
	for i, g := range req.Guards {
		asked := frameCondition(g.GetPrecondition())
		condition, err := conditionOf(&asked)
		guard := kv.Guard{Key: g.GetKey(), Condition: condition}
		if err := errors.Join(err, s.limits.CheckKey(guard.Key), guard.Check(s.limits)); err != nil {
			return nil, nil, nil, invalid(fmt.Errorf("guard %d: %w", i, err))
		}
		guards = append(guards, guard)
		ops, bytes = ops+1, bytes+len(guard.Key)+len(guard.Value)
	}
	lists := [2]*kv.WriteBatch{}
	for i, mutations := range [2][]*kvdpb.Mutation{req.ThenMutations, req.ElseMutations} {
		batch, err := s.batchOf(mutations)
		if err != nil {
			return nil, nil, nil, err
		}
		if len(batch.Guards()) > 0 {
			return nil, nil, nil, invalidf("a mutation has a precondition; what decides is the guards")
		}
		if batch.Len() > 0 {
			if err := batch.Check(s.limits); err != nil {
				return nil, nil, nil, invalid(err)
			}
		}
		lists[i] = batch
		ops, bytes = ops+batch.Len(), bytes+batch.Bytes()
	}
	if err := s.limits.CheckBatch(ops, bytes); err != nil {
		return nil, nil, nil, invalid(err)
	}
	return guards, lists[0], lists[1], nil
}
