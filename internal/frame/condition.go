package frame

import "google.golang.org/protobuf/encoding/protowire"

// ConditionKind is the number of a condition's field in the oneof of Precondition.
type ConditionKind uint8

// The kinds of conditions. Zero requires nothing.
const (
	MustExist     ConditionKind = 1
	MustNotExist  ConditionKind = 2
	VersionEquals ConditionKind = 3
	ValueEquals   ConditionKind = 4
)

// UnknownCondition is a condition of a newer client that this version does not know.
// The write must be rejected. It is never sent.
const UnknownCondition ConditionKind = 255

// The fields of Precondition.
const (
	conditionMustExist     = key(MustExist)<<3 | wireVarint
	conditionMustNotExist  = key(MustNotExist)<<3 | wireVarint
	conditionVersionEquals = key(VersionEquals)<<3 | wireVarint
	conditionValueEquals   = key(ValueEquals)<<3 | wireBytes
)

// Condition must hold of the key for a write to be applied.
type Condition struct {
	Kind    ConditionKind
	Version uint64 // of VersionEquals
	Value   []byte // of ValueEquals
}

// number returns the value of a condition that is not a byte string. A member of a
// oneof is sent even if it is zero: its presence selects the condition.
func (c *Condition) number() uint64 {
	if c.Kind == VersionEquals {
		return c.Version
	}
	return 1
}

func (c *Condition) size() int {
	if c.Kind == ValueEquals {
		return sizeMessage(conditionValueEquals, len(c.Value))
	}
	return protowire.SizeTag(protowire.Number(c.Kind)) + protowire.SizeVarint(c.number())
}

func (c *Condition) append(b []byte) []byte {
	if c.Kind == ValueEquals {
		return append(appendHeader(b, conditionValueEquals, len(c.Value)), c.Value...)
	}
	b = protowire.AppendVarint(b, uint64(key(c.Kind)<<3|wireVarint))
	return protowire.AppendVarint(b, c.number())
}

// decode decodes a Precondition; its last member wins. A must_exist or must_not_exist
// that is false requires nothing. An unknown field makes it an UnknownCondition,
// whatever else is set.
func (c *Condition) decode(data []byte) error {
	f := cursor{rest: data}
	for f.next() {
		if c.Kind == UnknownCondition {
			continue
		}
		switch f.key {
		case conditionMustExist, conditionMustNotExist:
			*c = Condition{}
			if f.uint != 0 {
				c.Kind = ConditionKind(f.key.number())
			}
		case conditionVersionEquals:
			*c = Condition{Kind: VersionEquals, Version: f.uint}
		case conditionValueEquals:
			*c = Condition{Kind: ValueEquals, Value: f.bytes}
		default:
			*c = Condition{Kind: UnknownCondition}
		}
	}
	return f.err()
}
