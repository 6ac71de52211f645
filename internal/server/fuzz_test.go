package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
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
	f.Fuzz(func(t *testing.T, data []byte) {
		var request frame.Request
		if frame.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, &request) != nil {
			return
		}
		unanswered := map[uint64]int{}
		for _, op := range request.Ops {
			unanswered[op.Tag]++
		}
		s := newServer(checkingStore{t: t, limits: limits}, Options{Deadline: time.Second}, defaultLifetimes)
		stream := &answers{ctx: &admission{Context: t.Context(), kill: func(error) {}}}
		p := &pipeline{server: s, stream: stream, stall: time.NewTimer(time.Hour)}
		p.serve(&request)
		p.stall.Stop()
		for _, tag := range stream.tags {
			unanswered[tag]--
		}
		for tag, n := range unanswered {
			require.Zero(t, n, "answers to tag %d", tag)
		}
		require.Zero(t, s.counters.bytes.Load())
		require.Zero(t, s.counters.panics.Load())
	})
}

// checkingStore fails the test if it is asked for what the limits forbid.
type checkingStore struct {
	Store
	t      *testing.T
	limits kv.Limits
}

func (s checkingStore) Limits() kv.Limits { return s.limits }

func (s checkingStore) Now() uint64 { return 1 << 40 }

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
		require.True(s.t, w.Origin.Named() || !w.Origin.Retried)
		require.LessOrEqual(s.t, w.Origin.Sequence, uint64(maxSequence))
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

// answers is the server's end of a stream that keeps the tags it is to send.
type answers struct {
	grpc.ServerStream
	ctx  context.Context
	tags []uint64
}

func (s *answers) Context() context.Context { return s.ctx }

func (s *answers) SendMsg(m any) error {
	for _, r := range m.(*frame.Response).Results {
		s.tags = append(s.tags, r.Tag)
	}
	return nil
}
