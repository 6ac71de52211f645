package partition

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
)

// visible is what readers of a partition may see. The leader of its writes changes it.
type visible struct {
	published atomic.Uint64         // every number up to this one
	early     atomic.Pointer[Early] // and these beyond it, for readers of single keys
	expected  atomic.Pointer[Joint] // inserted here, perhaps not everywhere
}

// Joint is a record that lies in several partitions. One store makes it visible in all of
// them.
type Joint struct {
	Seq   kv.SeqNum // set before any partition has it
	shown atomic.Bool
}

// Show makes the record visible.
func (j *Joint) Show() { j.shown.Store(true) }

// Visible reports whether Show was called.
func (j *Joint) Visible() bool { return j.shown.Load() }

// Expect has readers see a record once it is shown, which was inserted here.
func (p *Partition) Expect(j *Joint) { p.visible.expected.Store(j) }

// Publish makes every number up to this one visible. It never goes back. What Expect was
// called with is among them.
func (p *Partition) Publish(upTo kv.SeqNum) {
	p.visible.published.Store(uint64(upTo))
	if p.visible.expected.Load() != nil {
		p.visible.expected.Store(nil) // after published: see upTo
	}
}

// ShowEarly sets which numbers beyond the published ones readers of single keys see. What
// the set loses was published before.
func (p *Partition) ShowEarly(set Early) {
	if len(set) == 0 {
		p.visible.early.Store(nil)
		return
	}
	p.visible.early.Store(&set)
}

// view returns the newest sequence number up to which readers of this partition may see
// everything, and what else they may see. The order of the loads matters: what is published
// leaves early after that.
func (v *visible) view() (kv.SeqNum, Early) {
	set := v.earlySet()
	return v.upTo(), set
}

// upTo returns the newest sequence number up to which readers of this partition may
// see everything. A record over several partitions counts from the moment it is shown,
// even if this partition has not published it yet. The order of the two loads matters:
// Publish stores published before it clears expected.
func (v *visible) upTo() kv.SeqNum {
	if j := v.expected.Load(); j != nil && j.Visible() {
		return max(j.Seq, kv.SeqNum(v.published.Load()))
	}
	return kv.SeqNum(v.published.Load())
}

func (v *visible) earlySet() Early {
	if set := v.early.Load(); set != nil {
		return *set
	}
	return nil
}

// Published returns the newest sequence number whose writer may have been
// answered by this partition.
func (p *Partition) Published() kv.SeqNum {
	at, set := p.visible.view()
	return max(at, set.Newest())
}

// Early is the numbers of records that readers of single keys see although a record before them
// in the log is still hidden: it waits for a sync, for another partition or for a mark.
// Immutable; nil is the empty set. The ranges ascend and do not overlap.
type Early []Numbers

// Numbers is the sequence numbers from First to Last.
type Numbers struct{ First, Last kv.SeqNum }

// Search returns the place of the first range that does not begin before n.
func (s Early) Search(n kv.SeqNum) int {
	i, _ := slices.BinarySearchFunc(s, n, func(r Numbers, n kv.SeqNum) int { return cmp.Compare(r.First, n) })
	return i
}

// Has reports whether the set has a number.
func (s Early) Has(n kv.SeqNum) bool {
	i := s.Search(n)
	return i < len(s) && s[i].First == n || i > 0 && n <= s[i-1].Last
}

// Newest returns the largest number of the set, 0 if it is empty.
func (s Early) Newest() kv.SeqNum {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].Last
}
