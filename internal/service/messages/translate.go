package messages

import (
	"math"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// OptionsOf translates the options of a write. The server checks them.
func OptionsOf(o *kvdpb.RequestOptions) kv.WriteOptions {
	return kv.WriteOptions{
		Durability: service.DurabilityOf(int32(o.GetDurability())),
		RequestID: kv.RequestID{
			ClientID: o.GetClientId(), Sequence: o.GetSequence(),
			Retried: o.GetRetried(), KnownVersion: kv.SeqNum(o.GetKnownVersion()),
		},
	}
}

// FreshnessOf translates what a read asks for.
func FreshnessOf(o *kvdpb.RequestOptions) (f kv.Freshness, err error) {
	const longest = uint64(math.MaxInt64 / time.Millisecond)
	f.MaxLag = time.Duration(min(o.GetMaxLagMs(), longest)) * time.Millisecond
	f.MinVersion, err = service.VersionOf(o.GetMinVersion())
	return f, err
}

// ConditionOf translates a condition. One that this version does not know is refused when it is
// checked.
func ConditionOf(p *kvdpb.Precondition) kv.Condition {
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

// MutationsOf translates mutations, if there are not too many.
func MutationsOf(s *service.Server, all []*kvdpb.Mutation) ([]service.Mutation, error) {
	if len(all) == 0 {
		return nil, nil
	}
	if err := s.CheckMutations(len(all)); err != nil {
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
	to := service.Mutation{Condition: ConditionOf(m.GetPrecondition())}
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

// RangeOf translates a range.
func RangeOf(r *kvdpb.Range) kv.Range { return kv.Range{Start: r.GetStart(), End: r.GetEnd()} }

// MetaOf returns what is said of an atomic write.
func MetaOf(w service.Written) *kvdpb.ResponseMeta {
	return &kvdpb.ResponseMeta{Version: uint64(w.Version), Deduplicated: w.Deduplicated}
}
