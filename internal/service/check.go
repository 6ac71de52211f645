package service

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// Limits returns the limits of requests.
func (s *Server) Limits() kv.Limits { return s.limits }

// CheckKey checks a key to read, and that the client may read it.
func (s *Server) CheckKey(caller *Caller, key []byte) error {
	if err := s.limits.CheckKey(key); err != nil {
		return Invalid(err)
	}
	return s.mayRead(caller, key)
}

// CheckWrite checks a write of one key as its client asks for it, with its condition, and
// sets its expiry from its time to live. What the protocol could not decode has a kind or
// a level beyond those of package kv. looks: it returns what the key held. The client must
// have the right to write, and for that or a condition also the right to read.
func (s *Server) CheckWrite(caller *Caller, w *kv.Write, c *kv.Condition, ttlMillis uint64, looks bool) (err error) {
	if err := s.checkKind(&w.Op, ttlMillis); err != nil {
		return err
	}
	if err := w.Op.Check(s.limits); err != nil {
		return Invalid(err)
	}
	if err := s.checkCondition(c); err != nil {
		return err
	}
	if err := checkOptions(w.Durability, &w.RequestID); err != nil {
		return err
	}
	if err := s.mayWrite(caller, w.Op.Key); err != nil {
		return err
	}
	if looks || c.Kind != kv.Unconditional {
		return s.mayRead(caller, w.Op.Key)
	}
	return nil
}

// checkKind checks that an operation is one of a single key, and sets its expiry. Limits
// are left to the caller.
func (s *Server) checkKind(op *kv.Op, ttlMillis uint64) (err error) {
	switch op.Kind {
	case kv.KindPut:
		op.Expiry, err = s.expiryOf(ttlMillis)
		return err
	case kv.KindDelete:
		return nil
	}
	return Invalidf("operation is none that this server knows")
}

// UnknownCondition is the kind of a condition that a protocol does not know.
const UnknownCondition kv.ConditionKind = 255

func (s *Server) checkCondition(c *kv.Condition) error {
	if err := checkConditionKind(c); err != nil {
		return err
	}
	if err := c.Check(s.limits); err != nil {
		return Invalid(err)
	}
	return nil
}

func checkConditionKind(c *kv.Condition) error {
	if c.Kind > kv.IfValue {
		return Invalidf("unsupported precondition: upgrade the server")
	}
	return nil
}

// maxSequence is the largest sequence in a name: the store keeps the top bit, to
// tell the two ways that an Execute can go.
const maxSequence = 1<<63 - 1

func checkOptions(d kv.Durability, o *kv.RequestID) error {
	if !d.Valid() {
		return Invalidf("durability %d is none that this server knows", uint8(d))
	}
	if o.Sequence > maxSequence {
		return Invalidf("sequence %d is above %d", o.Sequence, uint64(maxSequence))
	}
	// It asks for what cannot be done: to know again what has no name.
	if o.Retried && !o.Named() {
		return Invalidf("a retried write needs a name: a client id and a sequence")
	}
	return nil
}

// DurabilityOf returns the level with a number, which protocols have in common. A number
// of no level makes a level that is refused.
func DurabilityOf(number int32) kv.Durability {
	const unknown = 255
	if number < 0 || number > unknown {
		return unknown
	}
	return kv.Durability(number)
}

// VersionOf checks a version that a client asks to read at; 0 is the newest.
func VersionOf(v uint64) (kv.SeqNum, error) {
	if v > uint64(kv.MaxSeqNum) {
		return 0, Invalidf("version %d is none that a store gives", v)
	}
	return kv.SeqNum(v), nil
}

// Epoch returns the random id of this opening of the store.
func (s *Server) Epoch() uint64 { return s.store.Epoch() }

// ReadVersion returns the version that a read asks for, if it is one of this opening
// of the store, as far as the client says: an epoch of 0 is not checked.
func (s *Server) ReadVersion(v, epoch uint64) (kv.SeqNum, error) {
	if v != 0 && epoch != 0 && epoch != s.store.Epoch() {
		return 0, kv.ErrOtherOpening
	}
	return VersionOf(v)
}

// checkRange is kv.Limits.CheckRange with a message that has no keys in it.
func (s *Server) checkRange(r kv.Range) error {
	if err := s.checkBounds(r); err != nil {
		return err
	}
	if len(r.End) > 0 && bytes.Compare(r.Start, r.End) > 0 {
		return Invalidf("the range ends before it starts")
	}
	return nil
}

func (s *Server) checkBounds(r kv.Range) error {
	if n := max(len(r.Start), len(r.End)); n > s.limits.KeyBytes {
		return TooLarge("a bound of the range has %d bytes, limit is %d", n, s.limits.KeyBytes)
	}
	return nil
}

// Mutation is a change in an atomic batch as its client asks for it.
type Mutation struct {
	Op        kv.Op // of a range: Key is its start, Value its end
	TTLMillis uint64
	Condition kv.Condition // becomes a guard of the batch
	Err       error        // why the protocol refuses it; nil: it does not
}

// batchOf makes one batch of mutations, their conditions being its guards. Its
// limits are left to the caller.
func (s *Server) batchOf(caller *Caller, mutations []Mutation) (*kv.WriteBatch, error) {
	if err := s.CheckMutations(len(mutations)); err != nil {
		return nil, err
	}
	batch := new(kv.WriteBatch)
	for i := range mutations {
		if err := s.addMutation(caller, batch, &mutations[i]); err != nil {
			return nil, inPart(err, "mutation %d", i)
		}
	}
	return batch, nil
}

// CheckMutations checks the number of mutations of one request, which a protocol does
// before it decodes them.
func (s *Server) CheckMutations(n int) error {
	if err := s.limits.CheckBatch(n, 0); err != nil {
		return Invalid(err)
	}
	return nil
}

// CheckReads checks the number of keys and ranges that a transaction read, and of keys that it names
// as expiring, which a protocol does before it decodes them.
func (s *Server) CheckReads(reads, expiring int) error {
	if err := s.limits.CheckReads(reads, expiring); err != nil {
		return Invalid(err)
	}
	return nil
}

// inPart says which part of a request an error is about.
func inPart(err error, format string, args ...any) error {
	part := fmt.Sprintf(format, args...)
	if f, ok := errors.AsType[*Error](err); ok {
		named := *f
		named.Message = part + ": " + f.Message
		return &named
	}
	return Invalid(fmt.Errorf("%s: %w", part, err))
}

func (s *Server) addMutation(caller *Caller, batch *kv.WriteBatch, m *Mutation) error {
	if err := checkConditionKind(&m.Condition); err != nil {
		return err
	}
	if m.Op.Kind == kv.KindRangeDelete {
		if m.Condition.Kind != kv.Unconditional {
			return fmt.Errorf("%w: a range delete takes no precondition", kv.ErrInvalidArgument)
		}
		if m.Err == nil {
			r := kv.Range{Start: m.Op.Key, End: m.Op.Value}
			batch.DeleteRange(r.Start, r.End)
			if err := s.checkBounds(r); err != nil {
				return err
			}
			return s.mayWriteRange(caller, r)
		}
	}
	if m.Err != nil {
		return m.Err
	}
	if err := s.checkKind(&m.Op, m.TTLMillis); err != nil {
		return err
	}
	batch.Add(m.Op)
	if err := s.mayWrite(caller, m.Op.Key); err != nil {
		return err
	}
	if m.Condition.Kind != kv.Unconditional {
		batch.Require(kv.Guard{Key: m.Op.Key, Condition: m.Condition})
		return s.mayRead(caller, m.Op.Key)
	}
	return nil
}
