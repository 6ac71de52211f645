package kvd

import (
	"bytes"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
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
	condition  frame.Condition
	previous   *Item
	writtenAt  *uint64
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
	choseWrittenAt
	choseTimed
)

// What the calls take. Within a batch or transaction a delete takes what a put
// does, but for a time to live; a range delete takes nothing.
const (
	ofPut    = ofDelete | choseTTL
	ofDelete = ofCommit | choseCondition | chosePrevious
	ofCommit = choseDurability | choseWrittenAt | choseTimed
	inBatch  = choseTTL | choseCondition
	inTxn    = choseTTL | choseCondition | chosePrevious
)

func (c choices) String() string {
	for _, named := range []struct {
		choice choices
		name   string
	}{
		{choseDurability, "Durable"}, {choseTTL, "TTL"}, {choseCondition, "a condition"},
		{chosePrevious, "Previous"}, {choseWrittenAt, "WrittenAt"},
		{choseTimed, "Timed"},
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
type Condition struct{ is frame.Condition }

func (c Condition) forWrite(o *writeOptions) {
	var err error
	if c.is.Kind == 0 {
		err = fmt.Errorf("%w: the zero Condition is none", ErrInvalid)
	}
	o.choose(choseCondition, err)
	o.condition = c.is
}

// IfAbsent holds if the key is absent. A write takes one condition.
func IfAbsent() Condition { return Condition{frame.Condition{Kind: frame.MustNotExist}} }

// IfPresent holds if the key is present.
func IfPresent() Condition { return Condition{frame.Condition{Kind: frame.MustExist}} }

// IfVersion holds if the key is present as version v wrote it. The error of a write
// under it has the version that was found in Error.Version. An absent key has version
// 0: IfVersion(0) is IfAbsent.
func IfVersion(v uint64) Condition {
	if v == 0 {
		return IfAbsent()
	}
	return Condition{frame.Condition{Kind: frame.VersionEquals, Version: v}}
}

// IfValue holds if the key is present with value v. It borrows v until the call that it
// is passed to returns.
func IfValue(v []byte) Condition {
	return Condition{frame.Condition{Kind: frame.ValueEquals, Value: v}}
}

// Previous has the write fill in what the key held before: a zero Item, with
// Version 0, if it was absent. Nothing is filled in if the call fails.
//
// The server remembers which writes happened, not what they replaced. So a write
// with Previous whose answer is lost is not tried again: it is ErrUncertain.
func Previous(into *Item) WriteOption {
	return writeOption(func(o *writeOptions) {
		var err error
		if into == nil {
			err = fmt.Errorf("%w: Previous of nil", ErrInvalid)
		}
		o.choose(chosePrevious, err)
		o.previous = into
	})
}

// WrittenAt has the write fill in its version, if the call succeeds.
func WrittenAt(into *uint64) WriteOption {
	return writeOption(func(o *writeOptions) {
		var err error
		if into == nil {
			err = fmt.Errorf("%w: WrittenAt of nil", ErrInvalid)
		}
		o.choose(choseWrittenAt, err)
		o.writtenAt = into
	})
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
		return writeOptions{durability: c.config.durability}, nil
	}
	o, err := collect(opts, takes)
	if o.chosen&choseDurability == 0 {
		o.durability = c.config.durability
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
func (o *writeOptions) apply(op *frame.Op) {
	op.Durability = o.durability.wire()
	op.Condition = o.condition
	op.ReturnPrevious = o.previous != nil
}

// reportAll fills in what the caller wants to know of an operation that succeeded.
func (o *writeOptions) reportAll(op *frame.Op, a *answer) {
	if o.previous != nil {
		*o.previous = a.item
		if a.found {
			o.previous.Key = bytes.Clone(op.Key)
		}
	}
	o.report(a.version)
}

// report fills in what the caller wants to know of a write that succeeded.
func (o *writeOptions) report(version uint64) {
	if o.writtenAt != nil {
		*o.writtenAt = version
	}
}

// ttlMillis is a time to live as the protocol has it: 0 is for ever.
func ttlMillis(d time.Duration) uint64 {
	millis := uint64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		millis++ // a part of one is rounded up
	}
	return millis
}

// ttlOf is the inverse of ttlMillis.
func ttlOf(millis uint64) time.Duration {
	return time.Duration(min(millis, uint64(maxTTL/time.Millisecond))) * time.Millisecond
}

const maxTTL time.Duration = 1<<63 - 1
