package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/pace"
)

// StateDigest says what state a member of a cluster had at a version.
type StateDigest struct {
	Version kv.SeqNum // of the entry that asked for it; never 0
	// Sum is a chain of keyhash.Sum over all items that a reader at the version sees, in the order
	// of their keys. For each item it is that of: the sum so far, the lengths of key and value,
	// version and expiry, as u64, then key and value.
	Sum uint64
}

// ErrDiffers says that the state of a member differs from that of the majority of its cluster.
var ErrDiffers = descriptor.ErrDiffers

// A digest is computed at compareRate at most, and takes at most 1/(1+compareRest) of the time of
// a processor, a hundredth while writers are slowed. It is given up after compareAge: until then
// versions that were overwritten since take space. Guessed.
const (
	compareRate     = 32 << 20 // bytes of keys and values per second
	compareRest     = 24
	compareRestBusy = 99
	compareAge      = time.Hour

	// compareStep is how much is read between two looks at the clock.
	compareStep = 64 << 10
)

// askToCompare proposes an entry that asks all members for a digest, if this one leads, an
// interval after the last one was applied.
func (m *member) askToCompare(now time.Time) {
	interval := m.e.opts.CompareInterval
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.leading.Load(); w != nil && interval > 0 && !m.digesting.Load() && now.Sub(m.compared) >= interval {
		if w.tenure.compare() == nil {
			m.compared = now
		}
	}
}

// awaitCurrent waits until everything that was committed before the start, anywhere, has been applied
// here: see compare. It asks again while too many reads wait.
func (m *member) awaitCurrent() {
	for {
		switch err := m.log.Read(m.life); {
		case err == nil:
			m.current.Store(true)
			return
		case !errors.Is(err, kv.ErrOverloaded):
			return // m.life or the log has ended
		}
		select {
		case <-time.After(patience):
		case <-m.life.Done():
			return
		}
	}
}

// compare begins to compute a digest of the state at an entry, in the background. The caller
// holds m.mu. It leaves the entry out if it is busy with an earlier one, and until the member is
// current, as the tables may then be too new to be read at the entry:
//
//   - They have later records: no version can be read that is exactly that old.
//   - They lack keys that expired after the entry. A compaction drops those by the time of the newest
//     entry that was applied, and leaves no number in the tables. It was done by this node before a
//     restart, or by the one whose checkpoint this node has installed.
//
// All that the tables know was committed before the start, so for an entry that is applied after the
// member became current neither is so.
func (m *member) compare(r *entry) {
	m.compared = time.Now()
	switch {
	case r.base <= m.tables: // it counts as visible
	case m.e.opts.CompareInterval <= 0 || !m.current.Load() || !m.digesting.CompareAndSwap(false, true):
		m.e.sequencer.Applied(r.base, 1)
	default:
		p := m.e.sequencer.AppliedPin(r.base, m.state.Time)
		m.digests.Go(func() {
			defer m.e.events.Guard()
			defer m.digesting.Store(false)
			m.digest(p)
		})
	}
}

// digest computes the digest of the state at a pin, which it releases, and hands it to the log.
func (m *member) digest(p *pin) {
	sum, err := m.e.digestAt(m.life, p)
	switch {
	case m.life.Err() != nil, m.e.Err() != nil:
	case err != nil:
		m.e.backgroundError(fmt.Errorf("compare the state at version %d with that of the other nodes: %w", p.at, err))
	default:
		m.log.Compare(StateDigest{p.at, sum})
	}
}

func (e *Engine) digestAt(ctx context.Context, p *pin) (sum uint64, err error) {
	s := &Scanner{e: e, ctx: ctx, at: p.at, now: p.now, left: math.MaxUint64, age: compareAge}
	s.mu.pin = p
	e.scans.add(s)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := e.sequencer.WaitVisible(ctx, p.at); err != nil {
		return 0, err
	}
	bucket := pace.NewResting(compareRate, func() int {
		if e.budget.pressure() > 0 {
			return compareRestBusy
		}
		return compareRest
	})
	unpaced := int64(0)
	var buf []byte
	for s.Next() {
		i := s.Item()
		buf = buf[:0]
		for _, n := range [...]uint64{sum, uint64(len(i.Key)), uint64(len(i.Value)), uint64(i.Version), i.Expiry} {
			buf = binary.LittleEndian.AppendUint64(buf, n)
		}
		buf = append(append(buf, i.Key...), i.Value...)
		sum = keyhash.Sum(buf)
		if unpaced += int64(len(buf)); unpaced >= compareStep {
			if err := bucket.Take(ctx, unpaced); err != nil {
				return 0, err
			}
			unpaced = 0
		}
	}
	return sum, s.Err()
}

// Differs implements Member. The store fails at once, and is not opened again: see
// descriptor.NoteDifference.
func (m *member) Differs(why string) {
	err := fmt.Errorf("%w: %w: %s", kv.ErrFailed, ErrDiffers, why)
	m.e.fail(err)
	if err := descriptor.NoteDifference(m.e.opts.FS, m.e.dir, why); err != nil {
		m.e.backgroundError(fmt.Errorf("note that the state differs: %w", err))
	}
}
