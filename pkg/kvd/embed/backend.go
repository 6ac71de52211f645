package embed

import (
	"context"
	"time"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// local is the backend that an engine in this process is.
type local struct {
	engine *engine.Engine
	limits kv.Limits
}

var _ backend.Backend = (*local)(nil)

func newBackend(e *engine.Engine) *local { return &local{engine: e, limits: e.Limits()} }

// Operate implements backend.Backend.
func (l *local) Operate(ctx context.Context, op backend.Op, t *backend.Timings) (backend.Answer, error) {
	return l.write(ctx, &op, t)
}

// GetFirst implements backend.Backend. It leaves the read to a snapshot, which costs little here.
func (l *local) GetFirst(context.Context, []byte, *backend.Timings) (backend.Answer, error) {
	return backend.Answer{}, nil
}

// BeginSnapshot implements backend.Backend.
func (l *local) BeginSnapshot(ctx context.Context, lease time.Duration, _ []byte) (backend.Snapshot, error) {
	s, err := l.engine.BeginSnapshot(ctx, lease)
	if err != nil {
		return backend.Snapshot{}, failure(err)
	}
	return backend.Snapshot{ID: s.ID, Version: uint64(s.Version), Epoch: s.Epoch, Lease: s.Lease}, nil
}

// KeepSnapshot implements backend.Backend.
func (l *local) KeepSnapshot(_ context.Context, id uint64, lease time.Duration) (time.Duration, error) {
	granted, err := l.engine.KeepSnapshot(id, lease)
	return granted, failure(err)
}

// ReleaseSnapshot implements backend.Backend.
func (l *local) ReleaseSnapshot(id uint64) { l.engine.ReleaseSnapshot(id) }

var errNoSlowLog = backend.Failure{
	Attempts: 1, Err: backend.ErrInvalid,
	Message: "a store in this process keeps no slow log; use Timed, or serve the store",
}

func noSlowLog() error {
	f := errNoSlowLog
	return &f
}

// SlowRequests implements backend.Backend.
func (l *local) SlowRequests(context.Context, int) (backend.SlowLog, error) {
	return backend.SlowLog{}, noSlowLog()
}

// ClearSlowRequests implements backend.Backend.
func (l *local) ClearSlowRequests(context.Context) error { return noSlowLog() }

// SetSetting implements backend.Backend.
func (l *local) SetSetting(context.Context, string, string) (before, after string, err error) {
	return "", "", &backend.Failure{
		Attempts: 1, Err: backend.ErrInvalid,
		Message: "a store in this process has no settings that change while it is open; close it, and open it with other options",
	}
}

func noCluster() error {
	return &backend.Failure{Attempts: 1, Err: backend.ErrInvalid, Message: "a store in this process is no node of a cluster"}
}

// Cluster implements backend.Backend.
func (l *local) Cluster(context.Context) (backend.Cluster, error) {
	return backend.Cluster{}, noCluster()
}

// TransferLeadership implements backend.Backend.
func (l *local) TransferLeadership(context.Context, uint64) (uint64, error) { return 0, noCluster() }

// AddNode implements backend.Backend.
func (l *local) AddNode(context.Context, string, uint64) (backend.AddedNode, error) {
	return backend.AddedNode{}, noCluster()
}

// RemoveNode implements backend.Backend.
func (l *local) RemoveNode(context.Context, uint64) error { return noCluster() }

// MoveNode implements backend.Backend.
func (l *local) MoveNode(context.Context, uint64, string) error { return noCluster() }

// Ping implements backend.Backend.
func (l *local) Ping(context.Context) error { return failure(l.engine.Err()) }

// Close implements backend.Backend.
func (l *local) Close() error {
	if err := l.engine.Close(); err != nil {
		return failure(err)
	}
	return nil
}

// tell fills in the timings of a call.
func tell(t *backend.Timings, s *trace.Stages) {
	if t != nil {
		*t = backend.Timings{Inbox: s.Inbox, Batch: s.Batch, Engine: s.Engine, LogWrite: s.LogWrite, Sync: s.Sync, Attempts: 1}
	}
}

// version is what the engine reads at.
func (l *local) version(at backend.ReadVersion) (kv.SeqNum, error) {
	switch {
	case at.Version > uint64(kv.MaxSeqNum):
		return 0, invalidf("version %d is none that a store gives", at.Version)
	case at.Version != 0 && at.Epoch != 0 && at.Epoch != l.engine.Epoch():
		return 0, failure(kv.ErrOtherOpening)
	}
	return kv.SeqNum(at.Version), nil
}

// ttlOf is what is left until an expiry: at least a millisecond, and 0 if it never comes.
func (l *local) ttlOf(expiry uint64) time.Duration {
	if expiry == 0 {
		return 0
	}
	left := kv.TimeLeftAt(l.engine.Now(), expiry)
	return time.Duration(min(left, uint64(maxDuration/time.Millisecond))) * time.Millisecond
}

const maxDuration time.Duration = 1<<63 - 1
