package service

import (
	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A write is translated in two steps: what a unary call or a batch carries first
// becomes an operation as a frame has it, and that is checked and put into the
// words of package kv. So there is one place that checks.

// writeOf checks a write of one key and translates it, but for what the caller
// has to keep somewhere: the condition, which is returned beside it, and what the
// key held before.
func (s *Server) writeOf(op *frame.Op) (w kv.Write, c kv.Condition, err error) {
	if w.Op, err = s.opOf(op); err != nil {
		return w, c, err
	}
	if err := w.Op.Check(s.limits); err != nil {
		return w, c, invalid(err)
	}
	if c, err = conditionOf(&op.Condition); err != nil {
		return w, c, err
	}
	if err := c.Check(s.limits); err != nil {
		return w, c, invalid(err)
	}
	o, err := optionsOf(&op.Options)
	w.Durability, w.RequestID = o.Durability, o.RequestID
	return w, c, err
}

// opOf translates what is to be done to a key. Limits are left to the caller.
func (s *Server) opOf(op *frame.Op) (kv.Op, error) {
	switch op.Kind {
	case frame.Put:
		expiry, err := s.expiryOf(op.TTLMillis)
		return kv.Op{Kind: kv.KindPut, Key: op.Key, Value: op.Value, Expiry: expiry}, err
	case frame.Delete:
		return kv.Op{Kind: kv.KindDelete, Key: op.Key}, nil
	}
	return kv.Op{}, invalidf("operation is none that this server knows")
}

func conditionOf(c *frame.Condition) (kv.Condition, error) {
	switch c.Kind {
	case 0:
		return kv.Condition{}, nil
	case frame.MustExist:
		return kv.Condition{Kind: kv.IfPresent}, nil
	case frame.MustNotExist:
		return kv.Condition{Kind: kv.IfAbsent}, nil
	case frame.VersionEquals:
		return kv.Condition{Kind: kv.IfVersion, Version: kv.SeqNum(c.Version)}, nil
	case frame.ValueEquals:
		return kv.Condition{Kind: kv.IfValue, Value: c.Value}, nil
	}
	return kv.Condition{}, invalidf("precondition is none that this server knows; ask a newer one")
}

// maxSequence is the largest sequence in a name: the store keeps the top bit, to
// tell the two ways that an Execute can go.
const maxSequence = 1<<63 - 1

// optionsOf checks the options of a write.
func optionsOf(o *frame.Options) (kv.WriteOptions, error) {
	durability, err := durabilityOf(o.Durability)
	if err != nil {
		return kv.WriteOptions{}, err
	}
	id := kv.RequestID{
		ClientID: o.ClientID, Sequence: o.Sequence,
		Retried: o.Retried, KnownVersion: kv.SeqNum(o.KnownVersion),
	}
	if o.Sequence > maxSequence {
		return kv.WriteOptions{}, invalidf("sequence %d is above %d", o.Sequence, uint64(maxSequence))
	}
	// It asks for what cannot be done: to know again what has no name.
	if o.Retried && !id.Named() {
		return kv.WriteOptions{}, invalidf("a retried write needs a name: a client id and a sequence")
	}
	return kv.WriteOptions{Durability: durability, RequestID: id}, nil
}

func durabilityOf(d kvdpb.Durability) (kv.Durability, error) {
	switch d {
	case kvdpb.Durability_DURABILITY_UNSPECIFIED:
		return kv.DurabilityDefault, nil
	case kvdpb.Durability_DURABILITY_MEMORY:
		return kv.DurabilityMemory, nil
	case kvdpb.Durability_DURABILITY_BUFFERED:
		return kv.DurabilityBuffered, nil
	case kvdpb.Durability_DURABILITY_SYNC:
		return kv.DurabilitySync, nil
	}
	return 0, invalidf("durability %d is none that this server knows", int32(d))
}

// versionOf checks a version that a caller asks to read at; 0 is the newest.
func versionOf(v uint64) (kv.SeqNum, error) {
	if v > uint64(kv.MaxSeqNum) {
		return 0, invalidf("version %d is none that a store gives", v)
	}
	return kv.SeqNum(v), nil
}

// readVersion returns the version that a read asks for, if it is one of this opening
// of the store, as far as the client says: an epoch of 0 is not checked.
func (s *Server) readVersion(v, epoch uint64) (kv.SeqNum, error) {
	if v != 0 && epoch != 0 && epoch != s.store.Epoch() {
		return 0, kv.ErrOtherOpening
	}
	return versionOf(v)
}

func frameOptions(o *kvdpb.RequestOptions) frame.Options {
	return frame.Options{
		Durability: o.GetDurability(),
		ClientID:   o.GetClientId(), Sequence: o.GetSequence(),
		Retried: o.GetRetried(), KnownVersion: o.GetKnownVersion(),
	}
}

func frameCondition(p *kvdpb.Precondition) frame.Condition {
	if p != nil && len(p.ProtoReflect().GetUnknown()) > 0 {
		return frame.Condition{Kind: frame.UnknownCondition}
	}
	switch kind := p.GetKind().(type) {
	case *kvdpb.Precondition_MustExist:
		if kind.MustExist {
			return frame.Condition{Kind: frame.MustExist}
		}
	case *kvdpb.Precondition_MustNotExist:
		if kind.MustNotExist {
			return frame.Condition{Kind: frame.MustNotExist}
		}
	case *kvdpb.Precondition_VersionEquals:
		return frame.Condition{Kind: frame.VersionEquals, Version: kind.VersionEquals}
	case *kvdpb.Precondition_ValueEquals:
		return frame.Condition{Kind: frame.ValueEquals, Value: kind.ValueEquals}
	}
	return frame.Condition{}
}

// item is what a read found, without its key.
func (s *Server) item(l *kv.Lookup) *kvdpb.Item {
	return &kvdpb.Item{Value: l.Value, Version: uint64(l.Version), TtlMs: s.timeLeft(l.Expiry)}
}

func meta(version kv.SeqNum) *kvdpb.ResponseMeta {
	return &kvdpb.ResponseMeta{Version: uint64(version)}
}
