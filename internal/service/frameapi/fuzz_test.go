package frameapi

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// FuzzPipelineFrame serves random bytes as a frame. Nothing panics; an operation
// over a limit never reaches the store; every operation is answered once.
func FuzzPipelineFrame(f *testing.F) {
	limits := kv.Limits{KeyBytes: 4, ValueBytes: 8, BatchOps: 4, BatchBytes: 16}
	for _, request := range []*kvdpb.PipelineRequest{
		{},
		{Ops: []*kvdpb.PipelineRequest_Op{{Tag: 1, Op: &kvdpb.PipelineRequest_Op_Get{Get: &kvdpb.GetRequest{Key: []byte("k")}}}}},
		{Ops: []*kvdpb.PipelineRequest_Op{
			{Tag: 2, Op: &kvdpb.PipelineRequest_Op_Put{Put: &kvdpb.PutRequest{
				Item:    &kvdpb.Item{Key: []byte("long key"), Value: []byte("v")},
				Options: &kvdpb.RequestOptions{Durability: 3},
			}}},
			{Tag: 5, Op: &kvdpb.PipelineRequest_Op_Get{Get: &kvdpb.GetRequest{Key: []byte("k"), AtVersion: 7}}},
			{Tag: 6, Op: &kvdpb.PipelineRequest_Op_Put{Put: &kvdpb.PutRequest{
				Item:           &kvdpb.Item{Key: []byte("k"), Value: []byte("v"), TtlMs: 5},
				Precondition:   &kvdpb.Precondition{Kind: &kvdpb.Precondition_ValueEquals{ValueEquals: []byte("old")}},
				ReturnPrevious: true,
				Options:        &kvdpb.RequestOptions{ClientId: 1, Sequence: 2, Retried: true, KnownVersion: 3},
			}}},
			{Tag: 3, TimeoutMs: 9, Op: &kvdpb.PipelineRequest_Op_Delete{Delete: &kvdpb.DeleteRequest{Key: []byte("k")}}},
		}},
	} {
		data, err := proto.Marshal(request)
		require.NoError(f, err)
		f.Add(data)
	}
	var b frame.Builder
	for _, oneVersion := range []bool{false, true} {
		b.Reset(frame.ReadFrame)
		for _, op := range []frame.Op{{}, {AtVersion: 7}, {Skipped: true}, {TimeoutMillis: 9}} {
			op.Kind, op.Key = frame.Get, []byte("k")
			if oneVersion {
				op.AtVersion = 0
			}
			b.Add(&op)
		}
		f.Add(slices.Clone(b.Finish(frame.Header{Timed: true, OneVersion: oneVersion})))
	}
	b.Reset(frame.WriteFrame)
	b.Add(&frame.Op{Kind: frame.Put, Key: []byte("long key"), Options: frame.Options{ClientID: 1, Sequence: 1}})
	b.Add(&frame.Op{Kind: frame.Delete, Key: []byte("k"), Condition: frame.Condition{Kind: frame.MustExist}, ReturnPrevious: true})
	f.Add(slices.Clone(b.Finish(frame.Header{Durability: kvdpb.Durability_DURABILITY_MEMORY})))
	f.Fuzz(func(t *testing.T, data []byte) {
		var request frame.Request
		if frame.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, &request) != nil && request.DecodeCompact(data) != nil {
			return
		}
		unanswered := map[uint64]int{}
		for _, op := range request.Ops {
			unanswered[op.Tag]++
		}
		s := service.New(checkingStore{t: t, limits: limits}, service.Options{Deadline: time.Hour})
		stream := new(answers)
		p := &Pipeline{transport: stream, frames: newFrames(s), ctx: t.Context(), keepsToken: true}
		p.token, p.err = make(chan struct{}, 1), io.EOF // it had the only frame
		turn := &ReceiveToken{pipeline: p, held: true}
		p.serve(&request, turn)
		turn.Pass()
		require.Len(t, p.token, 1)
		for _, tag := range stream.tags {
			unanswered[tag]--
		}
		for tag, n := range unanswered {
			require.Zero(t, n, "answers to tag %d", tag)
		}
		require.Zero(t, s.Memory().Used())
		require.Zero(t, s.Stats().Panics)
	})
}

// checkingStore fails the test if it is asked for what the limits forbid.
type checkingStore struct {
	service.Store
	t      *testing.T
	limits kv.Limits
}

func (s checkingStore) Limits() kv.Limits { return s.limits }

func (s checkingStore) Now() uint64 { return 1 << 40 }

// LookupCached has keys of an even length in memory.
func (s checkingStore) LookupCached(reads []*kv.Lookup) ([]*kv.Lookup, error) {
	var cached []*kv.Lookup
	left := reads[:0]
	for _, r := range reads {
		if len(r.Key)%2 == 0 {
			cached = append(cached, r)
		} else {
			left = append(left, r)
		}
	}
	return left, s.Lookup(context.Background(), cached)
}

func (s checkingStore) Lookup(ctx context.Context, reads []*kv.Lookup) error {
	_, err := s.LookupAt(ctx, reads, 0)
	return err
}

func (s checkingStore) LookupAt(_ context.Context, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error) {
	require.LessOrEqual(s.t, at, kv.MaxSeqNum)
	for _, r := range reads {
		require.NoError(s.t, s.limits.CheckKey(r.Key))
		r.Found = len(r.Key)%2 == 0
	}
	if at%2 == 1 {
		return 0, kv.ErrVersionGone
	}
	return at, nil
}

func (s checkingStore) Write(_ context.Context, writes []*kv.Write) error {
	for i, w := range writes {
		require.NoError(s.t, w.Op.Check(s.limits))
		require.True(s.t, w.Durability.Valid())
		require.True(s.t, w.RequestID.Named() || !w.RequestID.Retried)
		require.LessOrEqual(s.t, w.RequestID.Sequence, uint64(1<<63-1))
		if w.If != nil {
			require.NoError(s.t, w.If.Check(s.limits))
		}
		if w.Op.Expiry != 0 {
			require.Greater(s.t, w.Op.Expiry, s.Now())
		}
		if w.Previous != nil {
			require.Equal(s.t, w.Op.Key, w.Previous.Key)
			w.Previous.Found, w.Previous.Expiry = true, 1
		}
		if i%2 == 1 {
			w.Err = errors.Join(kv.ErrUncertain, context.DeadlineExceeded)
		}
	}
	return nil
}

// answers is a transport that keeps the tags it is to send.
type answers struct {
	Transport
	mu   sync.Mutex
	tags []uint64
}

func (a *answers) Send(r *frame.Response, _ *ReceiveToken) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Lender != nil {
		r.Lender.Give(r.Lent)
	}
	for _, result := range r.Results {
		a.tags = append(a.tags, result.Tag)
	}
	if r.Compact {
		r.AppendCompact(nil) // ascending
	}
}
