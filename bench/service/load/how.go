package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
)

// How says how the sets of a load are made.
type How string

const (
	// Plain sets are calls of Set.
	Plain How = ""
	// Updates read a key and set it, in one transaction. The target is an Updater.
	Updates How = "update"
	// IfVersion and IfValue sets are conditional on the version, or the value, that the
	// caller's last set of the key gave it. The target is a Comparer, and the callers have
	// keys of their own: a condition that does not hold ends the run.
	IfVersion How = "if version"
	IfValue   How = "if value"
)

// conditional reports whether sets depend on what their key had before.
func (h How) conditional() bool { return h == IfVersion || h == IfValue }

func (h How) validate() error {
	switch h {
	case Plain, Updates, IfVersion, IfValue:
		return nil
	}
	return fmt.Errorf("no sets are made as %q", h)
}

// owned is a key that no other caller sets, and what it has now.
type owned struct {
	version uint64
	value   []byte
}

// errNoCondition: the target cannot make conditional sets.
var errNoCondition = errors.New("the target has no conditional sets")

// learnAll has every caller read the keys of its own, before the load begins: the gets are no
// part of what conditional sets cost.
func learnAll(ctx context.Context, callers []*caller) error {
	errs := make([]error, len(callers))
	var all sync.WaitGroup
	for i, c := range callers {
		all.Go(func() { errs[i] = c.learn(ctx, uint64(i)) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// learn reads the keys of the caller with this index.
func (c *caller) learn(ctx context.Context, index uint64) error {
	target, ok := c.target.(Comparer)
	if !ok {
		return errNoCondition
	}
	for n := range c.own {
		id := ownKey(index, len(c.own), uint64(n))
		PutKey(c.key[:], id)
		value, version, err := target.GetVersion(ctx, c.key[:])
		if err != nil {
			return fmt.Errorf("get with version: %w", err)
		}
		if err := c.values.Check(value, id); err != nil {
			return err
		}
		c.own[n] = owned{version: version, value: bytes.Clone(value)}
	}
	return nil
}

// ownKey returns the number of the n-th key of a caller.
func ownKey(caller uint64, each int, n uint64) uint64 { return caller*uint64(each) + n }

// setOwned sets a key under the condition that it still has what the caller gave it.
func (c *caller) setOwned(ctx context.Context, o *owned) error {
	target := c.target.(Comparer)
	if c.how == IfValue {
		if err := target.SetIfValue(ctx, c.key[:], c.value, o.value); err != nil {
			return err
		}
		copy(o.value, c.value)
		return nil
	}
	version, err := target.SetIfVersion(ctx, c.key[:], c.value, o.version)
	if err == nil && version <= o.version {
		err = fmt.Errorf("%w: version %d follows version %d of a key", ErrWrongAnswer, version, o.version)
	}
	o.version = version
	return err
}

// update reads and sets a key in a transaction, and checks what it read.
func (c *caller) update(ctx context.Context, id uint64) error {
	target, ok := c.target.(Updater)
	if !ok {
		return errors.New("the target has no transactions")
	}
	return target.Update(ctx, c.key[:], c.value, func(old []byte) error { return c.values.Check(old, id) })
}
