package kvd

import (
	"fmt"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// WriteOption is an option of one write, batch or commit. The description of a call names the
// options that it takes; it returns ErrInvalid for others.
type WriteOption interface{ forWrite(*writeOptions) }

type writeOption func(*writeOptions)

func (f writeOption) forWrite(o *writeOptions) { f(o) }

type writeOptions struct {
	chosen     choices
	durability Durability
	ttl        time.Duration
	condition  backend.Condition
	timings    *Timings
	err        error // of the first choice that makes no sense
}

// choices is a set of kinds of options.
type choices uint8

const (
	choseDurability choices = 1 << iota
	choseTTL
	choseCondition
	chosePrevious
	choseTimed
)

// What the calls take. PutItem and DeleteItem also take ReturnPrevious.
const (
	ofPut    = ofDelete | choseTTL
	ofDelete = ofCommit | choseCondition
	ofCommit = choseDurability | choseTimed
	within   = choseTTL | choseCondition // of a put in a batch or transaction
)

func (c choices) String() string {
	for _, named := range []struct {
		choice choices
		name   string
	}{
		{choseDurability, "Durable"}, {choseTTL, "TTL"}, {choseCondition, "a condition"},
		{chosePrevious, "ReturnPrevious"}, {choseTimed, "Timed"},
	} {
		if c&named.choice != 0 {
			return named.name
		}
	}
	return "nothing"
}

// Durable sets what the acknowledgement of this write means.
func Durable(d Durability) WriteOption { return durable(d) }

// durable is Durable. Unlike a function, it is no allocation.
type durable Durability

func (d durable) forWrite(o *writeOptions) {
	o.choose(choseDurability, Durability(d).check())
	o.durability = Durability(d)
}

// TTL makes a put expire after d, rounded up to milliseconds; the key is absent from then on.
// Without TTL an item does not expire.
//
// The server's clock counts the time, also across a restart of the process. After a crash of
// the server's machine, keys may expire up to ten seconds early, and keys that are put soon
// after may live up to ten seconds longer. If the machine's clock jumps, time passes at half to
// twice its speed until it has caught up. An expired key never reappears.
func TTL(d time.Duration) WriteOption {
	return writeOption(func(o *writeOptions) {
		var err error
		if d <= 0 {
			err = fmt.Errorf("%w: time to live of %v; leave it out for ever", ErrInvalid, d)
		}
		o.choose(choseTTL, err)
		o.ttl = d
	})
}

// Condition is a condition on one key. A write whose condition does not hold returns
// ErrConflict. A [Guard] with a condition chooses a batch of Execute. The zero value is invalid.
type Condition struct{ is backend.Condition }

func (c Condition) forWrite(o *writeOptions) {
	var err error
	if c.is.Kind == 0 {
		err = fmt.Errorf("%w: the zero Condition is none", ErrInvalid)
	}
	o.choose(choseCondition, err)
	o.condition = c.is
}

// IfAbsent holds if the key is absent. A write takes at most one condition.
func IfAbsent() Condition { return Condition{backend.Condition{Kind: backend.MustNotExist}} }

// IfPresent holds if the key is present.
func IfPresent() Condition { return Condition{backend.Condition{Kind: backend.MustExist}} }

// IfVersion holds if the key has the version v. If it does not hold for a write, Error.Version
// is the version of the key. An absent key has version 0: IfVersion(0) is IfAbsent.
func IfVersion(v uint64) Condition {
	if v == 0 {
		return IfAbsent()
	}
	return Condition{backend.Condition{Kind: backend.VersionEquals, Version: v}}
}

// IfValue holds if the key is present with value v. It borrows v until the call returns.
func IfValue(v []byte) Condition {
	return Condition{backend.Condition{Kind: backend.ValueEquals, Value: v}}
}

// ReturnPrevious makes PutItem, DeleteItem and the writes of a Pipeline return the item that
// the key had before, in Written.Previous.
//
// The server remembers which writes it applied, but not what they replaced. So if the answer to
// such a write is lost, the client does not retry it: the call returns ErrUncertain.
func ReturnPrevious() WriteOption {
	return writeOption(func(o *writeOptions) { o.choose(chosePrevious, nil) })
}

func (o *writeOptions) choose(c choices, err error) {
	if err == nil && o.chosen&c != 0 {
		err = fmt.Errorf("%w: %v is chosen twice", ErrInvalid, c)
	}
	if o.err == nil {
		o.err = err
	}
	o.chosen |= c
}

// writeOptions collects the options of a call that takes some of them.
func (c *Client) writeOptions(opts []WriteOption, takes choices) (writeOptions, error) {
	if len(opts) == 0 {
		return writeOptions{durability: c.durability}, nil
	}
	o, err := collect(opts, takes)
	if o.chosen&choseDurability == 0 {
		o.durability = c.durability
	}
	return o, err
}

func collect(opts []WriteOption, takes choices) (writeOptions, error) {
	var o writeOptions
	for i, opt := range opts {
		if opt != nil {
			opt.forWrite(&o)
		} else if o.err == nil {
			o.err = nilOption(i)
		}
	}
	if wrong := o.chosen &^ takes; o.err == nil && wrong != 0 {
		o.err = fmt.Errorf("%w: the call does not take %v", ErrInvalid, wrong)
	}
	return o, o.err
}

// conditionCopy returns a copy of the condition that was chosen, nil if none was.
func (o *writeOptions) conditionCopy() *backend.Condition {
	if o.condition.Kind == 0 {
		return nil
	}
	c := o.condition
	return &c
}

// apply puts what was chosen into an operation.
func (o *writeOptions) apply(op *backend.Op) {
	op.TTL = o.ttl
	op.Durability = backend.Durability(o.durability)
	op.Condition = o.conditionCopy()
	op.ReturnPrevious = o.chosen&chosePrevious != 0
}

// backend are the options of a batch or commit.
func (o *writeOptions) backend() backend.WriteOptions {
	return backend.WriteOptions{Durability: backend.Durability(o.durability), Timings: (*backend.Timings)(o.timings)}
}
