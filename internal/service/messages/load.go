package messages

import (
	"time"

	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// TimingsOf translates where the time of a request went.
func TimingsOf(all *service.Times) *kvdpb.Timings {
	return &kvdpb.Timings{
		GateNs: uint64(all[service.StageGate]), InboxNs: uint64(all[service.StageInbox]), BatchNs: uint64(all[service.StageBatch]),
		EngineNs: uint64(all[service.StageEngine]), LogWriteNs: uint64(all[service.StageLogWrite]), SyncNs: uint64(all[service.StageSync]),
		ReplyNs: uint64(all[service.StageReply]),
	}
}

// charge takes a unary call from the quota of its client: one for each operation in it, and
// the bytes of its request.
func charge(s *service.Server, c *service.Call, req any, bytes int) error {
	if c.Identity.Usage() == nil {
		return nil
	}
	load := LoadOf(req)
	c.Charged = bytes
	return s.Charge(c.Identity, time.Now(), max(load.Ops, 1), bytes)
}

// LoadOf is what a unary call asks for.
func LoadOf(req any) (l service.Load) {
	switch r := req.(type) {
	case *kvdpb.GetRequest:
		l.Add(r.Key, 0)
	case *kvdpb.PutRequest:
		l.Add(r.GetItem().GetKey(), len(r.GetItem().GetValue()))
	case *kvdpb.DeleteRequest:
		l.Add(r.Key, 0)
	case *kvdpb.DeleteRangeRequest:
		addRange(&l, r.Range)
	case *kvdpb.BatchGetRequest:
		addKeys(&l, r.Keys)
	case *kvdpb.WriteRequest:
		addMutations(&l, r.Mutations)
	case *kvdpb.BeginSnapshotRequest:
		if len(r.ReadKey) > 0 {
			l.Add(r.ReadKey, 0)
		}
	case *kvdpb.CommitRequest:
		addMutations(&l, r.Mutations)
		addKeys(&l, r.ReadKeys)
		addKeys(&l, r.ExpiringKeys)
		for _, read := range r.ReadRanges {
			addRange(&l, read)
		}
	case *kvdpb.ExecuteRequest:
		for _, g := range r.Guards {
			l.Add(g.GetKey(), 0)
		}
		addMutations(&l, r.ThenMutations)
		addMutations(&l, r.ElseMutations)
	}
	return l
}

func addKeys(l *service.Load, keys [][]byte) {
	for _, key := range keys {
		l.Add(key, 0)
	}
}

func addRange(l *service.Load, r *kvdpb.Range) { l.Add(r.GetStart(), len(r.GetEnd())) }

func addMutations(l *service.Load, mutations []*kvdpb.Mutation) {
	for _, m := range mutations {
		if r, ok := m.GetOp().(*kvdpb.Mutation_DeleteRange); ok {
			addRange(l, r.DeleteRange)
			continue
		}
		change := mutationOf(m)
		l.Add(change.Op.Key, len(change.Op.Value))
	}
}
