package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Plan holds what the clients of one run have in common.
type Plan struct {
	Keys int // so few that clients conflict
	Span int // the widest scan, in keys
	// Cold is how many keys, the last ones, are read and written rarely, so that they
	// leave memory. If it is not 0, every batch has a condition on such a key too.
	Cold int
	// Durabilities are the levels that writes choose from.
	Durabilities []kv.Durability
	// Timeout is that of one attempt; 0: none.
	Timeout time.Duration
	// Start is the origin of the clock.
	Start time.Time
}

// Client sends random operations to a Store, one at a time, and records what it saw. It
// sends a write with an unknown outcome again, under the same request id, until it
// knows the outcome. Not safe for concurrent use.
type Client struct {
	Log   Log
	Tally Tally

	plan     *Plan
	store    Store
	number   uint16
	rng      *rand.Rand
	name     uint64 // the client id that the store sees
	sequence uint64
	values   Value
	seen     kv.SeqNum // the newest version of any answer
	// transacted is called after each committed transaction.
	transacted func()
	known      map[Key]Read
}

// MaxClients bounds the clients of a run: a Value contains the number of the client
// that wrote it.
const MaxClients = 1 << (32 - valueBits)

const valueBits = 26

// NewClient returns the client with this number, which must be below MaxClients.
func NewClient(plan *Plan, store Store, number int, seed uint64) *Client {
	rng := rand.New(rand.NewPCG(seed, uint64(number)))
	return &Client{
		plan: plan, store: store, number: uint16(number), rng: rng, name: rng.Uint64() | 1,
		values: Value(number) << valueBits, known: make(map[Key]Read), transacted: func() {},
	}
}

// Step performs one operation. An error means that something happened that never
// should.
func (c *Client) Step(ctx context.Context) error {
	switch dice := c.rng.IntN(100); {
	case dice < 40:
		return c.transactions(ctx, false)
	case dice < 52:
		return c.transactions(ctx, true)
	case dice < 62:
		return c.get(ctx)
	case dice < 67:
		_, err := c.snapshot(ctx, c.pick(1+c.rng.IntN(6)))
		return err
	case dice < 70:
		return c.scan(ctx)
	case dice < 80:
		return c.write(ctx)
	case dice < 90:
		return c.conditional(ctx)
	case dice < 95:
		return c.batch(ctx)
	default:
		return c.execute(ctx)
	}
}

func (c *Client) now() int64 { return int64(time.Since(c.plan.Start)) }

func (c *Client) key() Key {
	if hot := c.plan.Keys - c.plan.Cold; c.plan.Cold > 0 && c.rng.IntN(32) > 0 {
		return Key(c.rng.IntN(hot))
	}
	return Key(c.rng.IntN(c.plan.Keys))
}

// coldKey returns a key that is written rarely.
func (c *Client) coldKey() Key { return Key(c.plan.Keys - 1 - c.rng.IntN(c.plan.Cold)) }

// pick returns n different keys.
func (c *Client) pick(n int) []Key {
	keys := make([]Key, 0, n)
	for len(keys) < n {
		if k := c.key(); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// put returns a put of a new value.
func (c *Client) put(k Key) Write {
	c.values++
	return Write{Key: k, Value: c.values}
}

// putOrDelete returns a put or a delete.
func (c *Client) putOrDelete(k Key) Write {
	if c.rng.IntN(6) == 0 {
		return Write{Key: k}
	}
	return c.put(k)
}

// span returns a range of at most so many neighbouring keys.
func (c *Client) span(most int) (from, to Key) {
	n := 1 + c.rng.IntN(most)
	from = Key(c.rng.IntN(c.plan.Keys - n))
	return from, from + Key(n)
}

func (c *Client) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.plan.Timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.plan.Timeout)
}

// tolerate decides what an error of a read means. If ok, the read was answered. If
// neither ok nor an error, the read is not counted.
func (c *Client) tolerate(ctx context.Context, life int, err error) (ok bool, _ error) {
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrDown):
		return false, c.store.Restarted(ctx, life)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return false, nil
	case errors.Is(err, kv.ErrOverloaded), errors.Is(err, kv.ErrVersionGone):
		return false, nil
	}
	return false, fmt.Errorf("client %d: %w", c.number, err)
}

// view records a Get or a Snapshot.
func (c *Client) view(o Op) {
	o.Outcome, o.Client = Done, c.number
	c.seen = max(c.seen, o.ReadVersion)
	for _, r := range o.Reads {
		c.known[r.Key] = r
	}
	c.Log.Add(o)
}

// get reads one key.
func (c *Client) get(ctx context.Context) error {
	k, life := c.key(), c.store.Life()
	attempt, cancel := c.attempt(ctx)
	defer cancel()
	l := kv.Lookup{Key: k.Bytes()}
	call := c.now()
	err := c.store.Lookup(attempt, []*kv.Lookup{&l})
	end := c.now()
	if err == nil {
		err = l.Err
	}
	if ok, err := c.tolerate(ctx, life, err); !ok {
		return err
	}
	r, err := readOf(k, &l)
	if err != nil {
		return err
	}
	c.Tally.Gets++
	c.view(Op{Kind: Get, Call: call, Return: end, ReadVersion: l.ReadVersion, Reads: []Read{r}})
	return nil
}

// snapshot reads keys at the newest version. It returns nil if there was no answer.
func (c *Client) snapshot(ctx context.Context, keys []Key) (*Op, error) {
	life := c.store.Life()
	attempt, cancel := c.attempt(ctx)
	defer cancel()
	call := c.now()
	reads, at, err := c.lookup(attempt, keys, 0)
	if ok, err := c.tolerate(ctx, life, err); !ok {
		return nil, err
	}
	o := Op{Kind: Snapshot, Call: call, Return: c.now(), ReadVersion: at, Reads: reads}
	c.Tally.Snapshots++
	c.view(o)
	return &o, nil
}

// lookup reads keys at one version.
func (c *Client) lookup(ctx context.Context, keys []Key, at kv.SeqNum) ([]Read, kv.SeqNum, error) {
	found := make([]kv.Lookup, len(keys))
	asked := make([]*kv.Lookup, len(keys))
	for i, k := range keys {
		found[i].Key = k.Bytes()
		asked[i] = &found[i]
	}
	at, err := c.store.LookupAt(ctx, asked, at)
	if err != nil {
		return nil, 0, err
	}
	reads := make([]Read, len(keys))
	for i, k := range keys {
		if reads[i], err = readOf(k, &found[i]); err != nil {
			return nil, 0, err
		}
	}
	return reads, at, nil
}

// scan reads a range at the newest version.
func (c *Client) scan(ctx context.Context) error {
	life := c.store.Life()
	attempt, cancel := c.attempt(ctx)
	defer cancel()
	call := c.now()
	s, at, err := c.scanAt(attempt, 0)
	if ok, err := c.tolerate(ctx, life, err); !ok {
		return err
	}
	c.Tally.Scans++
	c.view(Op{Kind: Snapshot, Call: call, Return: c.now(), ReadVersion: at, Scans: []Scan{s}})
	return nil
}

// scanAt reads a range at a version, in either direction.
func (c *Client) scanAt(ctx context.Context, at kv.SeqNum) (Scan, kv.SeqNum, error) {
	from, to := c.span(c.plan.Span)
	o := kv.ScanOptions{At: at, Reverse: c.rng.IntN(2) == 0}
	items, at, err := c.store.Scan(ctx, kv.Range{Start: from.Bytes(), End: to.Bytes()}, o)
	if err != nil {
		return Scan{}, 0, err
	}
	if o.Reverse {
		slices.Reverse(items)
	}
	s, err := scanOf(from, to, items)
	return s, at, err
}

// lease begins a snapshot and reads keys and a range at its version. It returns nil if
// there was no answer; otherwise the caller must release the snapshot.
func (c *Client) lease(ctx context.Context, keys []Key) (*Op, kv.Snapshot, error) {
	life := c.store.Life()
	attempt, cancel := c.attempt(ctx)
	defer cancel()
	call := c.now()
	snapshot, err := c.store.BeginSnapshot(attempt, 10*time.Second)
	if ok, err := c.tolerate(ctx, life, err); !ok {
		return nil, kv.Snapshot{}, err
	}
	o := Op{Kind: Snapshot, Call: call, Return: c.now(), ReadVersion: snapshot.Version}
	s, _, err := c.scanAt(attempt, snapshot.Version)
	if err == nil {
		o.Scans = []Scan{s}
		o.Reads, _, err = c.lookup(attempt, keys, snapshot.Version)
	}
	if ok, err := c.tolerate(ctx, life, err); !ok {
		c.store.ReleaseSnapshot(snapshot.ID)
		return nil, kv.Snapshot{}, err
	}
	c.Tally.Snapshots++
	c.Tally.Scans++
	c.view(o)
	return &o, snapshot, nil
}
