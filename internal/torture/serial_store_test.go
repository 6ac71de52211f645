package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/torture/history"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// remoteStore is a kvd that is killed and started again, as a history.Store. It
// speaks to the server without the client of pkg/kvd, which would hide versions,
// names and retries.
type remoteStore struct {
	life atomic.Pointer[remoteLife]
}

// remoteLife is one process, from its start to its end.
type remoteLife struct {
	number int
	conn   *grpc.ClientConn
	kv     kvdpb.KVServiceClient
	txn    kvdpb.TxnServiceClient
	next   chan struct{} // closed when the next life serves
}

// begin makes the server at an address the present one.
func (s *remoteStore) begin(address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	l := &remoteLife{
		number: 1, conn: conn, kv: kvdpb.NewKVServiceClient(conn), txn: kvdpb.NewTxnServiceClient(conn), next: make(chan struct{}),
	}
	old := s.life.Load()
	if old == nil {
		s.life.Store(l)
		return nil
	}
	l.number = old.number + 1
	s.life.Store(l)
	close(old.next)
	return old.conn.Close()
}

func (s *remoteStore) Life() int { return s.life.Load().number }

func (s *remoteStore) Restarted(ctx context.Context, number int) error {
	for {
		l := s.life.Load()
		if l.number > number {
			return nil
		}
		select {
		case <-l.next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reasons is what the words of the protocol mean.
var reasons = map[string]error{
	kvdpb.ReasonKeyNotFound:      kv.ErrNotFound,
	kvdpb.ReasonOverloaded:       kv.ErrOverloaded,
	kvdpb.ReasonDeadlineExceeded: context.DeadlineExceeded,
	kvdpb.ReasonCancelled:        context.DeadlineExceeded,
	kvdpb.ReasonConflict:         &kv.ConflictError{},
	kvdpb.ReasonOutcomeUnknown:   kv.ErrUncertain,
	kvdpb.ReasonVersionGone:      kv.ErrVersionGone,
}

// storeError translates an error of gRPC into one of package kv, and returns the
// version that came with it.
func storeError(err error) (version kv.SeqNum, _ error) {
	if err == nil {
		return 0, nil
	}
	st := status.Convert(err)
	for _, detail := range st.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok {
			continue
		}
		if text := info.Metadata[kvdpb.MetadataVersion]; text != "" {
			n, bad := strconv.ParseUint(text, 10, 64)
			if bad != nil {
				return 0, bad
			}
			version = kv.SeqNum(n)
		}
		if info.Reason == kvdpb.ReasonConditionFailed {
			return version, &kv.ConditionError{Found: version != 0, Version: version}
		}
		if known := reasons[info.Reason]; known != nil {
			return version, fmt.Errorf("%w: %s", known, st.Message())
		}
		return version, err
	}
	switch st.Code() {
	case codes.Unavailable, codes.Canceled: // Canceled: its connection was closed
		return 0, fmt.Errorf("%w: %w", history.ErrDown, err)
	case codes.DeadlineExceeded:
		return 0, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return 0, err
}

func (s *remoteStore) BeginSnapshot(ctx context.Context, lease time.Duration) (kv.Snapshot, error) {
	r, err := s.life.Load().txn.BeginSnapshot(ctx, &kvdpb.BeginSnapshotRequest{LeaseMs: uint32(lease.Milliseconds())})
	if err != nil {
		_, err := storeError(err)
		return kv.Snapshot{}, err
	}
	return kv.Snapshot{ID: r.SnapshotId, Version: kv.SeqNum(r.Version), Lease: time.Duration(r.LeaseMs) * time.Millisecond}, nil
}

// ReleaseSnapshot tries once: if the server is gone, so is the snapshot, and else
// its lease ends soon.
func (s *remoteStore) ReleaseSnapshot(id uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = s.life.Load().txn.ReleaseSnapshot(ctx, &kvdpb.ReleaseSnapshotRequest{SnapshotId: id})
}

func (s *remoteStore) Lookup(ctx context.Context, reads []*kv.Lookup) error {
	for _, l := range reads {
		r, err := s.life.Load().kv.Get(ctx, &kvdpb.GetRequest{Key: l.Key})
		version, err := storeError(err)
		switch {
		case errors.Is(err, kv.ErrNotFound):
			l.ReadVersion = version
		case err != nil:
			return err
		default:
			answerWith(l, r.Item)
			l.ReadVersion = kv.SeqNum(r.Meta.GetVersion())
		}
	}
	return nil
}

// answerWith notes what was found.
func answerWith(l *kv.Lookup, item *kvdpb.Item) {
	l.Found, l.Value, l.Version = true, item.GetValue(), kv.SeqNum(item.GetVersion())
}

func (s *remoteStore) LookupAt(ctx context.Context, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error) {
	request := &kvdpb.BatchGetRequest{AtVersion: uint64(at)}
	for _, l := range reads {
		request.Keys = append(request.Keys, l.Key)
	}
	r, err := s.life.Load().kv.BatchGet(ctx, request)
	if err != nil {
		_, err := storeError(err)
		return 0, err
	}
	if len(r.Lookups) != len(reads) {
		return 0, fmt.Errorf("asked for %d keys, got %d", len(reads), len(r.Lookups))
	}
	for i, found := range r.Lookups {
		if found.Found {
			answerWith(reads[i], found.Item)
		}
	}
	return kv.SeqNum(r.Meta.GetVersion()), nil
}

func (s *remoteStore) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (items []kv.Item, at kv.SeqNum, err error) {
	stream, err := s.life.Load().kv.Scan(ctx, &kvdpb.ScanRequest{
		Range: &kvdpb.Range{Start: r.Start, End: r.End}, Reverse: o.Reverse, AtVersion: uint64(o.At),
		ChunkBytes: 200, // so that most scans have several
	})
	for err == nil {
		var chunk *kvdpb.ScanResponse
		if chunk, err = stream.Recv(); err != nil {
			break
		}
		version := kv.SeqNum(chunk.Meta.GetVersion())
		if at != 0 && version != at {
			return nil, 0, fmt.Errorf("a scan at version %d goes on at %d", at, version)
		}
		at = version
		for _, item := range chunk.Items {
			items = append(items, kv.Item{Key: item.Key, Value: item.Value, Version: kv.SeqNum(item.Version)})
		}
	}
	if errors.Is(err, io.EOF) {
		return items, at, nil
	}
	_, err = storeError(err)
	return nil, 0, err
}

func (s *remoteStore) Write(ctx context.Context, writes []*kv.Write) error {
	for _, w := range writes {
		s.write(ctx, w)
	}
	return nil
}

func (s *remoteStore) write(ctx context.Context, w *kv.Write) {
	var previous *kvdpb.Item
	var meta *kvdpb.ResponseMeta
	var err error
	options := optionsOf(kv.WriteOptions{Durability: w.Durability, RequestID: w.RequestID})
	if w.Op.Kind == kv.KindPut {
		var r *kvdpb.PutResponse
		r, err = s.life.Load().kv.Put(ctx, &kvdpb.PutRequest{
			Item: &kvdpb.Item{Key: w.Op.Key, Value: w.Op.Value}, Precondition: preconditionOf(w.If), ReturnPrevious: w.Previous != nil, Options: options,
		})
		previous, meta = r.GetPrevious(), r.GetMeta()
	} else {
		var r *kvdpb.DeleteResponse
		r, err = s.life.Load().kv.Delete(ctx, &kvdpb.DeleteRequest{
			Key: w.Op.Key, Precondition: preconditionOf(w.If), ReturnPrevious: w.Previous != nil, Options: options,
		})
		previous, meta = r.GetPrevious(), r.GetMeta()
	}
	if _, w.Err = storeError(err); w.Err != nil {
		return
	}
	w.Version, w.Deduplicated = kv.SeqNum(meta.GetVersion()), meta.GetDeduplicated()
	if w.Previous != nil && previous != nil {
		answerWith(w.Previous, previous)
	}
}

func (s *remoteStore) Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error) {
	r, err := s.life.Load().kv.Write(ctx, &kvdpb.WriteRequest{Mutations: mutationsOf(b), Atomic: true, Options: optionsOf(o)})
	_, err = storeError(err)
	return kv.SeqNum(r.GetMeta().GetVersion()), err
}

func (s *remoteStore) Commit(ctx context.Context, t *kv.Transaction, o kv.WriteOptions) (kv.SeqNum, error) {
	request := &kvdpb.CommitRequest{
		ReadVersion: uint64(t.ReadVersion), ReadKeys: t.Keys, Mutations: mutationsOf(t.Batch), Options: optionsOf(o),
	}
	for _, r := range t.Ranges {
		request.ReadRanges = append(request.ReadRanges, &kvdpb.Range{Start: r.Start, End: r.End})
	}
	r, err := s.life.Load().txn.Commit(ctx, request)
	_, err = storeError(err)
	return kv.SeqNum(r.GetMeta().GetVersion()), err
}

func (s *remoteStore) Execute(ctx context.Context, guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (succeeded bool, at kv.SeqNum, err error) {
	request := &kvdpb.ExecuteRequest{ThenMutations: mutationsOf(then), ElseMutations: mutationsOf(otherwise), Options: optionsOf(o)}
	for _, g := range guards {
		request.Guards = append(request.Guards, &kvdpb.ExecuteRequest_Guard{Key: g.Key, Precondition: preconditionOf(&g.Condition)})
	}
	r, err := s.life.Load().txn.Execute(ctx, request)
	_, err = storeError(err)
	return r.GetSucceeded(), kv.SeqNum(r.GetMeta().GetVersion()), err
}

func optionsOf(o kv.WriteOptions) *kvdpb.RequestOptions {
	return &kvdpb.RequestOptions{
		ClientId: o.RequestID.ClientID, Sequence: o.RequestID.Sequence, Durability: kvdpb.Durability(o.Durability),
		Retried: o.RequestID.Retried, KnownVersion: uint64(o.RequestID.KnownVersion),
	}
}

func preconditionOf(c *kv.Condition) *kvdpb.Precondition {
	if c == nil {
		return nil
	}
	switch c.Kind {
	case kv.IfAbsent:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustNotExist{MustNotExist: true}}
	case kv.IfPresent:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustExist{MustExist: true}}
	case kv.IfVersion:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_VersionEquals{VersionEquals: uint64(c.Version)}}
	case kv.IfValue:
		return &kvdpb.Precondition{Kind: &kvdpb.Precondition_ValueEquals{ValueEquals: c.Value}}
	}
	return nil
}

// mutationsOf returns the operations of a batch. A guard stands with the first
// operation on its key; without one it has no place in the protocol and is left
// out, for then it only repeats what was read.
func mutationsOf(b *kv.WriteBatch) []*kvdpb.Mutation {
	var mutations []*kvdpb.Mutation
	guards := b.Guards()
	for _, op := range b.Ops() {
		var m kvdpb.Mutation
		switch op.Kind {
		case kv.KindPut:
			m.Op = &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: op.Key, Value: op.Value}}
		case kv.KindDelete:
			m.Op = &kvdpb.Mutation_Delete{Delete: op.Key}
		default:
			m.Op = &kvdpb.Mutation_DeleteRange{DeleteRange: &kvdpb.Range{Start: op.Key, End: op.Value}}
		}
		if len(guards) > 0 && op.Kind != kv.KindRangeDelete && bytes.Equal(guards[0].Key, op.Key) {
			m.Precondition = preconditionOf(&guards[0].Condition)
			guards = guards[1:]
		}
		mutations = append(mutations, &m)
	}
	return mutations
}
