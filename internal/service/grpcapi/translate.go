package grpcapi

import (
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// optionsOf translates the options of a write. The server checks them.
func optionsOf(o *kvdpb.RequestOptions) kv.WriteOptions {
	return kv.WriteOptions{
		Durability: service.DurabilityOf(int32(o.GetDurability())),
		RequestID: kv.RequestID{
			ClientID: o.GetClientId(), Sequence: o.GetSequence(),
			Retried: o.GetRetried(), KnownVersion: kv.SeqNum(o.GetKnownVersion()),
		},
	}
}

func conditionOf(p *kvdpb.Precondition) kv.Condition {
	if p != nil && len(p.ProtoReflect().GetUnknown()) > 0 {
		return kv.Condition{Kind: service.UnknownCondition}
	}
	switch kind := p.GetKind().(type) {
	case *kvdpb.Precondition_MustExist:
		if kind.MustExist {
			return kv.Condition{Kind: kv.IfPresent}
		}
	case *kvdpb.Precondition_MustNotExist:
		if kind.MustNotExist {
			return kv.Condition{Kind: kv.IfAbsent}
		}
	case *kvdpb.Precondition_VersionEquals:
		return kv.Condition{Kind: kv.IfVersion, Version: kv.SeqNum(kind.VersionEquals)}
	case *kvdpb.Precondition_ValueEquals:
		return kv.Condition{Kind: kv.IfValue, Value: kind.ValueEquals}
	}
	return kv.Condition{}
}

// mutationsOf translates mutations, if there are not too many.
func (a *api) mutationsOf(all []*kvdpb.Mutation) ([]service.Mutation, error) {
	if len(all) == 0 {
		return nil, nil
	}
	if err := a.server.CheckMutations(len(all)); err != nil {
		return nil, err
	}
	mutations := make([]service.Mutation, len(all))
	for i, m := range all {
		mutations[i] = mutationOf(m)
	}
	return mutations, nil
}

// mutationOf translates a mutation. One that this version does not know has no kind, and
// is refused when it is checked.
func mutationOf(m *kvdpb.Mutation) service.Mutation {
	to := service.Mutation{Condition: conditionOf(m.GetPrecondition())}
	switch m := m.GetOp().(type) {
	case *kvdpb.Mutation_Put:
		to.Op, to.TTLMillis = kv.Op{Kind: kv.KindPut, Key: m.Put.GetKey(), Value: m.Put.GetValue()}, m.Put.GetTtlMs()
	case *kvdpb.Mutation_Delete:
		to.Op = kv.Op{Kind: kv.KindDelete, Key: m.Delete}
	case *kvdpb.Mutation_DeleteRange:
		to.Op = kv.Op{Kind: kv.KindRangeDelete, Key: m.DeleteRange.GetStart(), Value: m.DeleteRange.GetEnd()}
		if m.DeleteRange == nil {
			// A field that was left out must not delete everything.
			to.Err = service.Invalidf("the range to delete is missing; an empty range message is all keys")
		}
	}
	return to
}

func rangeOf(r *kvdpb.Range) kv.Range { return kv.Range{Start: r.GetStart(), End: r.GetEnd()} }

// item is what a read found, without its key.
func (a *api) item(l *kv.Lookup) *kvdpb.Item {
	return &kvdpb.Item{Value: l.Value, Version: uint64(l.Version), TtlMs: a.server.TimeLeft(l.Expiry)}
}

func meta(version kv.SeqNum) *kvdpb.ResponseMeta {
	return &kvdpb.ResponseMeta{Version: uint64(version)}
}

func metaOf(w service.Written) *kvdpb.ResponseMeta {
	return &kvdpb.ResponseMeta{Version: uint64(w.Version), Deduplicated: w.Deduplicated}
}
