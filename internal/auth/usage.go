package auth

import (
	"fmt"
	"sync"
	"time"
)

// Usage is what the clients of one name use of their quota. Its times are those that callers
// give. Safe for concurrent use.
type Usage struct {
	name string

	mu struct {
		sync.Mutex
		quota   Quota
		buckets [2]bucket // of Requests and Bytes
		UsageCounts
	}
}

// UsageCounts are counters since the name has a quota, and what is held now.
type UsageCounts struct {
	Requests, Bytes        uint64 // taken
	Snapshots, Connections int    // held
	Refused                [resources]uint64
}

// NamedUsage is the usage of one name, or, if that is empty, of all names that have none of
// their own.
type NamedUsage struct {
	Name string
	UsageCounts
}

// Exceeded is why a quota refuses.
type Exceeded struct {
	Name       string // of the identity
	Resource   Resource
	Limit      string        // the figure, in words
	RetryAfter time.Duration // until it would not refuse, if nothing else is taken
}

func (e *Exceeded) Error() string {
	return fmt.Sprintf("%q is over its quota: %s", e.Name, e.Limit)
}

// retryHeld is the advice to a client that has all it may hold: nothing says when some of it
// ends. Guessed.
const retryHeld = time.Second

// setQuota gives the usage a new quota. Buckets of new rates are full.
func (u *Usage) setQuota(q Quota) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.quota != q {
		u.mu.quota, u.mu.buckets = q, [2]bucket{}
	}
}

// rates returns what bounds the buckets.
func (q *Quota) rates() (rates [2]Rate, burst time.Duration) {
	burst = q.Burst
	if burst == 0 {
		burst = DefaultBurst
	}
	return [2]Rate{q.Requests, q.Bytes}, burst
}

// Take takes operations and the bytes of a request, or nothing, and then returns why. If they
// are more than a full bucket has, a full one is enough; the next wait longer.
func (u *Usage) Take(now time.Time, ops, bytes int64) *Exceeded {
	u.mu.Lock()
	defer u.mu.Unlock()
	rates, burst := u.mu.quota.rates()
	amounts := [2]int64{ops, bytes}
	for r, rate := range rates {
		if wait := u.mu.buckets[r].wait(rate, burst, amounts[r], now); wait > 0 {
			return u.exceededLocked(Resource(r), wait)
		}
	}
	for r, rate := range rates {
		u.mu.buckets[r].spend(rate, burst, amounts[r], now)
	}
	u.mu.UsageCounts.Requests += uint64(ops)
	u.mu.UsageCounts.Bytes += uint64(bytes)
	return nil
}

// TakeAnswer takes the bytes of an answer before it is sent, or, while bytes are owed by others
// than its request, which has taken so many, nothing, and then returns why. An answer may have
// more bytes than are left. These are owed, and nothing else is taken until the rate has made up
// for them.
func (u *Usage) TakeAnswer(now time.Time, bytes, request int64) *Exceeded {
	u.mu.Lock()
	defer u.mu.Unlock()
	rates, burst := u.mu.quota.rates()
	rate := rates[Bytes]
	if wait := u.mu.buckets[Bytes].wait(rate, burst, 0, now); wait > 0 && wait > rate.timeOf(request) {
		return u.exceededLocked(Bytes, wait)
	}
	u.mu.buckets[Bytes].spend(rate, burst, bytes, now)
	return nil
}

// Settle is called once an answer is made: of the bytes that TakeAnswer took for it some may not
// be sent, and others were not known. It counts those sent.
func (u *Usage) Settle(now time.Time, taken, sent int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	rates, burst := u.mu.quota.rates()
	u.mu.buckets[Bytes].spend(rates[Bytes], burst, sent-taken, now)
	u.mu.UsageCounts.Bytes += uint64(sent)
}

// Hold takes one of what is held until Release: Snapshots or Connections.
func (u *Usage) Hold(r Resource) *Exceeded {
	u.mu.Lock()
	defer u.mu.Unlock()
	held, limit := u.heldLocked(r)
	if limit > 0 && *held >= limit {
		return u.exceededLocked(r, retryHeld)
	}
	*held++
	return nil
}

// Release gives back one.
func (u *Usage) Release(r Resource) {
	u.mu.Lock()
	defer u.mu.Unlock()
	held, _ := u.heldLocked(r)
	*held--
}

func (u *Usage) heldLocked(r Resource) (held *int, limit int) {
	if r == Snapshots {
		return &u.mu.Snapshots, u.mu.quota.Snapshots
	}
	return &u.mu.Connections, u.mu.quota.Connections
}

func (u *Usage) exceededLocked(r Resource, wait time.Duration) *Exceeded {
	return &Exceeded{Name: u.name, Resource: r, Limit: u.mu.quota.limit(r), RetryAfter: wait}
}

// CountRefused counts operations, snapshots or connections that were refused.
func (u *Usage) CountRefused(r Resource, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.Refused[r] += uint64(n)
}

// Counts returns the counters.
func (u *Usage) Counts() UsageCounts {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.UsageCounts
}

func (c *UsageCounts) add(o *UsageCounts) {
	c.Requests += o.Requests
	c.Bytes += o.Bytes
	c.Snapshots += o.Snapshots
	c.Connections += o.Connections
	for r := range c.Refused {
		c.Refused[r] += o.Refused[r]
	}
}

// bucket is what is left of a rate: a token bucket, kept as the time at which it is full again.
// The zero value is full.
type bucket struct{ full time.Time }

// maxDebt bounds what is owed beyond a bucket. Guessed: a client that has sent one huge request
// at a low rate is not shut out for days.
const maxDebt = time.Hour

// timeOf returns how long it takes until a rate has allowed so many.
func (r Rate) timeOf(n int64) time.Duration {
	return time.Duration(min(float64(n)*float64(r.Per)/float64(r.Count), float64(2*maxBurst)))
}

// sizeOf returns how long an empty bucket takes to be full. It has what the rate allows in
// burst, and one in any case.
func (r Rate) sizeOf(burst time.Duration) time.Duration { return max(burst, r.timeOf(1)) }

// wait returns how long until so many, or a full bucket, may be taken.
func (b *bucket) wait(r Rate, burst time.Duration, n int64, now time.Time) time.Duration {
	if r.Count == 0 {
		return 0
	}
	size := r.sizeOf(burst)
	missing := max(0, b.full.Sub(now))
	return max(0, missing+min(r.timeOf(n), size)-size)
}

// spend takes so many, or gives them back if there are fewer than none.
func (b *bucket) spend(r Rate, burst time.Duration, n int64, now time.Time) {
	if r.Count == 0 {
		return
	}
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(r.timeOf(n))
	if latest := now.Add(r.sizeOf(burst) + maxDebt); b.full.After(latest) {
		b.full = latest
	}
}
