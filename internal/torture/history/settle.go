package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// answer is the result of one attempt at a write.
type answer struct {
	version      kv.SeqNum
	deduplicated bool
	tells        bool // whether the call reports deduplication
}

// maxAttempts bounds the attempts at a write whose outcome stays unknown.
const maxAttempts = 20

// loseEvery: a client discards one of this many answers, as if it had been lost.
const loseEvery = 25

// settle sends a write until its outcome is known, and records it. If the write was
// refused, it returns the last error as refusal. A successful try may add what it
// learned to o.
//
// A refusal is final only if no earlier attempt can still be applied: if no attempt was
// in doubt; if the store has been restarted since; or if the refusal is the conflict of
// a transaction, which remains, since what was written stays written.
func (c *Client) settle(ctx context.Context, o *Op, try func(context.Context, kv.WriteOptions) (answer, error)) (refusal, _ error) {
	c.sequence++
	options := kv.WriteOptions{
		Durability: c.plan.Durabilities[c.rng.IntN(len(c.plan.Durabilities))],
		RequestID:  kv.RequestID{ClientID: c.name, Sequence: c.sequence, KnownVersion: c.seen},
	}
	o.Kind, o.Client, o.Outcome, o.Call = Commit, c.number, Unknown, c.now()
	doubt := 0         // the last life in which an attempt was in doubt
	var past kv.SeqNum // a version that was visible before the last attempt; 0: not known
	var lost kv.SeqNum // the version of the discarded answer
	for range maxAttempts {
		life := c.store.Life()
		attempt, cancel := c.attempt(ctx)
		got, err := try(attempt, options)
		cancel()
		o.Return = c.now()
		switch {
		case err == nil && lost == 0 && c.rng.IntN(loseEvery) == 0:
			// As if the answer had been lost.
			c.Tally.Lost++
			lost, past, doubt, options.RequestID.Retried = got.version, got.version, life, true
		case lost != 0 && (err == nil && got.version != lost || refused(err)):
			return nil, fmt.Errorf("client %d: acknowledged as version %d, and sent again as %d (%v): %s", c.number, lost, got.version, err, o)
		case err == nil:
			o.Outcome, o.Version = Done, got.version
			c.seen = max(c.seen, got.version)
			c.Log.Add(*o)
			return nil, c.resolved(o, got, doubt, life, past)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, kv.ErrUncertain), errors.Is(err, ErrDown), errors.Is(err, context.DeadlineExceeded):
			options.RequestID.Retried = true
			if doubt = c.store.Life(); errors.Is(err, ErrDown) {
				doubt = life // or a later one, but that has ended too
				if err := c.store.Restarted(ctx, life); err != nil {
					return nil, err
				}
			}
			// A read between the attempts detects a write that is applied twice.
			probe, err := c.snapshot(ctx, o.keys())
			if err != nil {
				return nil, err
			}
			if past = 0; probe != nil {
				past = probe.ReadVersion
			}
		case errors.Is(err, kv.ErrOverloaded):
			if err := pause(ctx); err != nil {
				return nil, err
			}
		case !refused(err):
			return nil, fmt.Errorf("client %d: %w, of %s", c.number, err, o)
		case doubt == life && !(errors.Is(err, kv.ErrConflict) && o.ReadVersion != 0):
			if err := c.store.Restarted(ctx, life); err != nil {
				return nil, err
			}
		default:
			o.Outcome = Refused
			c.Log.Add(*o)
			if doubt != 0 {
				c.Tally.RefusedAtRetry++
			}
			return err, nil
		}
	}
	c.Log.Add(*o)
	c.Tally.Forgotten++
	return kv.ErrUncertain, nil
}

// pause gives an overloaded store some time.
func pause(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refused reports whether an error says that the write was not applied.
func refused(err error) bool {
	return errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrConditionFailed) || errors.Is(err, kv.ErrVersionGone)
}

// resolved counts an acknowledged write, and checks that the store correctly reports
// whether an earlier attempt was applied.
func (c *Client) resolved(o *Op, got answer, doubt, life int, past kv.SeqNum) error {
	if got.deduplicated {
		c.Tally.Deduplicated++
	}
	if doubt == 0 {
		if got.deduplicated {
			return fmt.Errorf("client %d: deduplicated at the first attempt: %s", c.number, o)
		}
		return nil
	}
	before := got.version <= past || got.deduplicated
	if before {
		c.Tally.Applied++
	} else {
		c.Tally.AppliedByRetry++
	}
	if got.tells && got.version <= past && !got.deduplicated {
		return fmt.Errorf("client %d: an old version, and not deduplicated: %s", c.number, o)
	}
	if doubt < life && past != 0 && got.deduplicated && got.version > past {
		return fmt.Errorf("client %d: deduplicated, but it was not there after the restart, at %d: %s", c.number, past, o)
	}
	return nil
}

// keys returns the first key of each write.
func (o *Op) keys() []Key {
	var keys []Key
	for _, w := range o.Writes {
		keys = append(keys, w.Key)
	}
	return keys
}
