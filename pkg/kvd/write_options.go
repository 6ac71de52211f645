package kvd

import (
	"fmt"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// WriteOption is a choice for one write, batch or commit. Which of them a call
// takes is in its description; another one makes it fail with ErrInvalid.
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

// Durable chooses what the acknowledgement of this write means.
func Durable(d Durability) WriteOption {
	return writeOption(func(o *writeOptions) {
		o.choose(choseDurability, d.check())
		o.durability = d
	})
}

// TTL makes a put expire after d, which is rounded up to milliseconds: the key is
// then absent. Without it the put lives until it is overwritten or deleted.
//
// The time is that of the server, which goes on over a restart of the process, however
// it ended. After a crash of the machine that the server runs on, keys may expire up to
// ten seconds early, and what is put soon after may live up to ten seconds longer; if
// the machine's clock jumps, the time passes at half to twice its speed until it has
// caught up. A key that has expired never comes back.
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

// Condition is a condition on what one key holds: of a write, which fails with
// ErrConflict if it does not hold, or of a [Guard]. The zero value is no condition.
type Condition struct{ is backend.Condition }

func (c Condition) forWrite(o *writeOptions) {
	var err error
	if c.is.Kind == 0 {
		err = fmt.Errorf("%w: the zero Condition is none", ErrInvalid)
	}
	o.choose(choseCondition, err)
	o.condition = c.is
}

// IfAbsent holds if the key is absent. A write takes one condition.
func IfAbsent() Condition { return Condition{backend.Condition{Kind: backend.MustNotExist}} }

// IfPresent holds if the key is present.
func IfPresent() Condition { return Condition{backend.Condition{Kind: backend.MustExist}} }

// IfVersion holds if the key is present as version v wrote it. The error of a write
// under it has the version that was found in Error.Version. An absent key has version
// 0: IfVersion(0) is IfAbsent.
func IfVersion(v uint64) Condition {
	if v == 0 {
		return IfAbsent()
	}
	return Condition{backend.Condition{Kind: backend.VersionEquals, Version: v}}
}

// IfValue holds if the key is present with value v. It borrows v until the call that it
// is passed to returns.
func IfValue(v []byte) Condition {
	return Condition{backend.Condition{Kind: backend.ValueEquals, Value: v}}
}

// ReturnPrevious has PutItem, DeleteItem and the writes of a Pipeline return what the
// key held before, in Written.Previous.
//
// The server remembers which writes happened, not what they replaced. So a write
// with ReturnPrevious whose answer is lost is not tried again: it is ErrUncertain.
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
	for _, opt := range opts {
		opt.forWrite(&o)
	}
	if wrong := o.chosen &^ takes; o.err == nil && wrong != 0 {
		o.err = fmt.Errorf("%w: the call does not take %v", ErrInvalid, wrong)
	}
	return o, o.err
}

// apply puts what was chosen into an operation.
func (o *writeOptions) apply(op *backend.Op) {
	op.TTL = o.ttl
	op.Durability = backend.Durability(o.durability)
	op.Condition = o.condition
	op.ReturnPrevious = o.chosen&chosePrevious != 0
}

// backend are the options of a batch or commit.
func (o *writeOptions) backend() backend.WriteOptions {
	return backend.WriteOptions{Durability: backend.Durability(o.durability), Timings: (*backend.Timings)(o.timings)}
}
