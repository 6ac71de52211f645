package frame

import "google.golang.org/protobuf/encoding/protowire"

// ConditionKind says what a Condition asks: the number of its field in the oneof
// of Precondition.
type ConditionKind uint8

// The kinds of conditions. Zero asks nothing.
const (
	MustExist     ConditionKind = 1
	MustNotExist  ConditionKind = 2
	VersionEquals ConditionKind = 3
	ValueEquals   ConditionKind = 4
)

// UnknownCondition stands for what a newer client asks and this version does not
// know. A write must not be done as if nothing had been asked. It is never sent.
const UnknownCondition ConditionKind = 255

// The fields of Precondition.
const (
	conditionMustExist     = key(MustExist)<<3 | wireVarint
	conditionMustNotExist  = key(MustNotExist)<<3 | wireVarint
	conditionVersionEquals = key(VersionEquals)<<3 | wireVarint
	conditionValueEquals   = key(ValueEquals)<<3 | wireBytes
)

// Condition is what must hold of its key for a write to happen.
type Condition struct {
	Kind    ConditionKind
	Version uint64 // of VersionEquals
	Value   []byte // of ValueEquals
}

// number is the value of a condition that is no byte string. A member of a oneof
// is sent though it be zero: its presence says what is asked.
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

// decode reads a Precondition, of which the last member wins. One that must or
// must not exist, and says false, asks nothing. Fields that are not known here make
// it an UnknownCondition, whatever stands beside them.
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
