package kv

import (
	"bytes"
	"fmt"
)

// ConditionKind says what a Condition requires of its key.
type ConditionKind uint8

const (
	// Unconditional requires nothing. It is the zero Condition.
	Unconditional ConditionKind = iota
	// IfAbsent: the key is absent or has expired.
	IfAbsent
	// IfPresent: the key is present.
	IfPresent
	// IfVersion: the key is present and was last written at the given version.
	IfVersion
	// IfValue: the key is present with exactly the given value.
	IfValue
)

// Condition must hold of a key, at the write's position in the log, for the write to be
// applied (compare-and-set).
type Condition struct {
	Kind    ConditionKind
	Version SeqNum // of IfVersion
	Value   []byte // of IfValue
}

// Holds reports whether the condition holds for the result of a read.
func (c *Condition) Holds(found *Lookup) bool {
	switch c.Kind {
	case IfAbsent:
		return !found.Found
	case IfPresent:
		return found.Found
	case IfVersion:
		return found.Found && found.Version == c.Version
	case IfValue:
		return found.Found && !found.Omitted && bytes.Equal(found.Value, c.Value)
	}
	return true
}

// Want returns which values a read must load for Holds: for IfValue those of the same
// length, which bounds the memory by what the caller sent; otherwise none.
func (c *Condition) Want() Want {
	if c.Kind == IfValue {
		return WantLength(len(c.Value))
	}
	return WantNone
}

// Check reports whether the condition is valid under the limits.
func (c *Condition) Check(l Limits) error {
	switch {
	case c.Kind > IfValue:
		return fmt.Errorf("%w: condition %d", ErrInvalidArgument, c.Kind)
	case c.Kind == IfVersion && c.Version == 0:
		return fmt.Errorf("%w: no write has version 0; ask whether the key is absent", ErrInvalidArgument)
	}
	return l.CheckValue(c.Value)
}

func (c *Condition) String() string {
	switch c.Kind {
	case IfAbsent:
		return "absent"
	case IfPresent:
		return "present"
	case IfVersion:
		return fmt.Sprintf("of version %d", c.Version)
	case IfValue:
		return fmt.Sprintf("of a certain value of %d bytes", len(c.Value))
	}
	return "any"
}

// Guard is a condition on one key that a batch depends on.
type Guard struct {
	Key []byte
	Condition
}

// ConditionError reports a condition that did not hold; nothing was written.
// errors.Is(err, ErrConditionFailed) holds for it.
type ConditionError struct {
	Key     []byte
	Wanted  string // "absent", "of version 7", ...
	Found   bool
	Version SeqNum // of the entry that was found
}

func (e *ConditionError) Error() string {
	if !e.Found {
		return fmt.Sprintf("condition failed: key %q should be %s, but is absent", e.Key, e.Wanted)
	}
	return fmt.Sprintf("condition failed: key %q should be %s, but is there with version %d", e.Key, e.Wanted, e.Version)
}

// Is makes every ConditionError match ErrConditionFailed.
func (e *ConditionError) Is(target error) bool { return target == ErrConditionFailed }

// Evaluate returns nil if the condition holds for the result of a read of the key, else a
// *ConditionError with a copy of the key.
func (g *Guard) Evaluate(found *Lookup) error {
	if g.Holds(found) {
		return nil
	}
	return &ConditionError{Key: bytes.Clone(g.Key), Wanted: g.String(), Found: found.Found, Version: found.Version}
}
