package compaction

import (
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

// Known is the input of Pick besides the Version.
type Known struct {
	// OldestSnapshot is the smallest sequence number in use by a snapshot, kv.MaxSeqNum if
	// there is none.
	OldestSnapshot kv.SeqNum
	// Ranges returns the range tombstones of a table of the Version. If it is nil, each
	// is worth no more than a tombstone of one key.
	Ranges RangeTombstones
	// Now is a time in Unix milliseconds that is not later than the clock of any reader, now
	// or in the future.
	Now uint64
	// Stats returns the statistics of a table of the Version, empty for a table of an older
	// format. If it is nil, nothing is known.
	Stats func(kv.FileNum) kv.TableStats
	// Damaged reports whether a table or value file is damaged. If it is nil, none is.
	Damaged func(kv.FileNum) bool
}

// Pick returns the most useful merge that can start now, false if none is worth
// doing. It is pure.
//
// It prefers tables that can be dropped unread; then merges of deltas, which are cheap and
// shorten every read. Every choice also empties condemned value files that it touches.
func Pick(v *manifest.Version, p Policy, known Known) (Choice, bool) {
	k := newPicker(v, p)
	k.known = known
	if c, ok := k.dropCovered(); ok {
		return c, true
	}
	if c, ok := k.dropDead(); ok {
		return c, true
	}
	c, ok := k.pick()
	if ok {
		c = k.carry(c)
	}
	return c, ok
}

func (k *picker) pick() (Choice, bool) {
	if c, ok := k.tooMany(); ok {
		return c, true
	}
	if c, _, ok := k.tier(0); ok {
		return c, true
	}
	if c, ok := k.gather(); ok {
		return c, true
	}
	drain, due := k.drain()
	if due && len(k.carry(drain).Rewrite) > 0 {
		return drain, true
	}
	if c, ok := k.collect(); ok { // a drain elsewhere would not free any space
		return c, true
	}
	if due {
		return drain, true
	}
	return k.deadBase()
}

// All returns the next step towards a partition without deltas, false if there are none or
// damaged tables allow no more. It is pure.
//
// A small partition takes one step. A larger one first merges its deltas into one and
// then drains that into the base step by step: this writes the deltas once more, but
// no step needs space for a second copy of the base.
func All(v *manifest.Version, p Policy, known Known) (Choice, bool) {
	k := newPicker(v, p)
	k.known = known
	if len(v.Deltas) == 0 {
		return Choice{}, false
	}
	if v.Bytes() <= k.p.DrainBytes && !k.broken(v.Base) && !k.broken(v.Deltas...) {
		return k.carry(Choice{Kind: manifest.CompactBase, Deltas: v.Deltas, Base: v.Base, Reason: ReasonAll}), true
	}
	if deltas := k.wholeDeltas(); len(deltas) > 1 {
		return k.carry(Choice{Kind: manifest.CompactDeltas, Deltas: deltas, Reason: ReasonAll}), true
	}
	c, ok := k.drainOldest(ReasonAll)
	return k.carry(c), ok
}

// Debt estimates the bytes that must be read and written before Pick finds
// nothing more to do in v, without merges that only range tombstones make worth doing.
// It is pure.
func Debt(v *manifest.Version, p Policy) uint64 {
	k := newPicker(v, p)
	var sum uint64
	for from := 0; ; {
		c, next, ok := k.tier(from)
		if !ok {
			break
		}
		sum += c.Bytes()
		from = next
	}
	if _, due := k.drainDue(); due {
		oldest := k.oldest()
		sum += oldest.Bytes() + v.Base.Overlapping(oldest[0].Smallest, oldest[len(oldest)-1].Largest).Bytes()
	}
	if c, ok := k.collect(); ok {
		c = k.carry(c)
		sum += c.Bytes() + c.RewriteBytes()
	}
	return sum
}

// picker holds a Version for the rules.
type picker struct {
	v     *manifest.Version
	p     Policy
	sizes []uint64 // weight of each delta

	known Known
}

func newPicker(v *manifest.Version, p Policy) *picker {
	k := &picker{v: v, p: p.withDefaults()}
	for _, run := range v.Deltas {
		k.sizes = append(k.sizes, weightOf(run))
	}
	return k
}

func (k *picker) oldest() manifest.Run { return k.v.Deltas[len(k.v.Deltas)-1] }

// tooMany picks the cheapest adjacent deltas whose merge leaves MaxDeltas.
func (k *picker) tooMany() (Choice, bool) {
	count := len(k.v.Deltas) - k.p.MaxDeltas + 1
	best, bestBytes := -1, uint64(0)
	for from := 0; count > 1 && from+count <= len(k.v.Deltas); from++ {
		if k.broken(k.v.Deltas[from : from+count]...) {
			continue
		}
		var bytes uint64
		for i := from; i < from+count; i++ {
			bytes += k.sizes[i]
		}
		if best < 0 || bytes < bestBytes {
			best, bestBytes = from, bytes
		}
	}
	if best < 0 {
		return Choice{}, false
	}
	return Choice{Kind: manifest.CompactDeltas, Deltas: k.v.Deltas[best : best+count], Reason: ReasonTooMany}, true
}

// tier picks the newest group of at least DeltaFanIn deltas of similar size,
// from the given position on, and returns the position after it. From
// newest to oldest, a delta belongs to the group if it is at most twice the
// largest before it. The oldest delta is excluded once it is due to be merged into the
// base.
func (k *picker) tier(from int) (c Choice, next int, ok bool) {
	end := len(k.v.Deltas)
	if _, due := k.drain(); due {
		end--
	}
	for ; from < end; from++ {
		var largest uint64
		to := from
		for to < end && (to == from || k.sizes[to] <= 2*largest) && !k.broken(k.v.Deltas[to]) {
			largest = max(largest, k.sizes[to])
			to++
		}
		if to-from >= k.p.DeltaFanIn {
			return Choice{Kind: manifest.CompactDeltas, Deltas: k.v.Deltas[from:to], Reason: ReasonTier}, to, true
		}
	}
	return Choice{}, end, false
}

// tombstonesWorth estimates what the tombstones of some runs free in the base: each
// a mean entry, and range tombstones what they cover.
func (k *picker) tombstonesWorth(runs ...manifest.Run) uint64 {
	entries := k.v.Base.Entries()
	if entries == 0 {
		return 0
	}
	var deletes uint64
	for _, run := range runs {
		deletes += run.Deletes()
		for i := range run {
			deletes += k.expired(&run[i])
		}
	}
	return deletes*(weightOf(k.v.Base)/entries) + k.covered(runs...)
}

// hidden estimates what the entries of some runs hide in the base if each overwrites one: a mean
// entry of the tables of the base that have its keys. The weight of a run does not tell that: small
// values may have overwritten large ones. It is 0 unless Policy.Overwrites is set.
func (k *picker) hidden(runs ...manifest.Run) (sum uint64) {
	if !k.p.Overwrites {
		return 0
	}
	for _, run := range runs {
		for i := range run {
			below := k.overlap(run[i : i+1])
			if entries := below.Entries(); entries > 0 {
				weight := weightOf(below)
				sum += min(weight, run[i].Entries*(weight/entries))
			}
		}
	}
	return sum
}

// threshold is what a delta must be worth to be merged into the base.
func (k *picker) threshold() uint64 { return weightOf(k.v.Base) / uint64(k.p.BaseRatio) }

// drainDue reports whether the oldest delta should be merged into the base, and why.
func (k *picker) drainDue() (reason string, due bool) {
	if len(k.v.Deltas) == 0 {
		return "", false
	}
	oldest, all := k.sizes[len(k.sizes)-1], uint64(0)
	for _, size := range k.sizes {
		all += size
	}
	switch {
	case oldest >= k.threshold():
		return ReasonSize, true
	case all >= 2*k.threshold(), k.hidden(k.oldest()) >= k.threshold():
		return ReasonSpace, true
	}
	return ReasonTombstones, oldest+k.tombstonesWorth(k.oldest()) >= k.threshold()
}

// gather merges all deltas into one if their tombstones together, or what they hide, are worth
// the threshold, though those of the oldest alone are not. The result is then due to be
// merged into the base.
func (k *picker) gather() (Choice, bool) {
	if _, due := k.drainDue(); due || len(k.v.Deltas) < 2 || k.broken(k.v.Deltas...) {
		return Choice{}, false
	}
	c := Choice{Kind: manifest.CompactDeltas, Deltas: k.v.Deltas}
	switch {
	case k.tombstonesWorth(k.v.Deltas...) >= k.threshold():
		c.Reason = ReasonTombstones
	case k.hidden(k.v.Deltas...) >= k.threshold():
		c.Reason = ReasonSpace
	default:
		return Choice{}, false
	}
	return c, true
}

// drain picks a part of the oldest delta to merge into the base, if that is due.
func (k *picker) drain() (Choice, bool) {
	reason, due := k.drainDue()
	if !due {
		return Choice{}, false
	}
	return k.drainOldest(reason)
}

// drainOldest picks the table of the oldest delta that reads the least of the
// base for what it is worth, and the tables after it up to DrainBytes. Least overlap
// first is better than round robin by key: what a drain leaves of a delta is where the
// next delta is dense.
func (k *picker) drainOldest(reason string) (Choice, bool) {
	run := k.oldest()
	from, least := -1, 0.0
	for i := range run {
		table := run[i : i+1]
		if !k.drains(table) {
			continue
		}
		cost := float64(k.overlap(table).Bytes()) / float64(weightOf(table)+k.tombstonesWorth(table))
		if from < 0 || cost < least {
			from, least = i, cost
		}
	}
	if from < 0 {
		return Choice{}, false
	}
	to := from + 1
	for to < len(run) && k.drains(run[to:to+1]) && run[from:to+1].Bytes()+k.overlap(run[from:to+1]).Bytes() <= k.p.DrainBytes {
		to++
	}
	return Choice{
		Kind:   manifest.CompactBase,
		Deltas: []manifest.Run{run[from:to]},
		Base:   k.overlap(run[from:to]),
		Reason: reason,
	}, true
}

// overlap returns the tables of the base between the first and the last key of
// a part of a delta.
func (k *picker) overlap(part manifest.Run) manifest.Run {
	return k.v.Base.Overlapping(part[0].Smallest, part[len(part)-1].Largest)
}

// deadBase picks a table of the base of which a BaseRatio-th is dead: tombstones, older
// versions and expired entries that no snapshot needs any more, or what range tombstones
// cover. Such entries are in the base because a snapshot, now ended, needed them, or
// because they expired later. Merging the table alone drops them all, so it is not picked
// again.
func (k *picker) deadBase() (Choice, bool) {
	ratio := uint64(k.p.BaseRatio)
	for i := range k.v.Base {
		t := &k.v.Base[i]
		if t.MaxSeq > k.known.OldestSnapshot {
			continue
		}
		dead := t.Deletes + k.stats(t).Shadowed + k.expired(t)
		if dead == 0 {
			continue
		}
		table := k.v.Base[i : i+1]
		if k.broken(table) {
			continue
		}
		if ratio*dead >= t.Entries || ratio*k.covered(table) >= weight(t) {
			return Choice{Kind: manifest.CompactBase, Base: table, Reason: ReasonTombstones}, true
		}
	}
	return Choice{}, false
}

// dropDead picks the tables of the base in which everything is a tombstone or has
// expired, to be dropped unread. There is nothing older that they hide.
func (k *picker) dropDead() (Choice, bool) {
	c := Choice{Kind: manifest.CompactBase, Drop: true, Reason: ReasonDead}
	for i := range k.v.Base {
		t := &k.v.Base[i]
		expiring := k.stats(t).Expiring
		if t.MaxSeq <= k.known.OldestSnapshot && expiring+t.Deletes == t.Entries && k.expired(t) == expiring {
			c.Base = append(c.Base, *t)
		}
	}
	return c, len(c.Base) > 0
}

func (k *picker) stats(t *kv.TableMeta) kv.TableStats {
	if k.known.Stats == nil {
		return kv.TableStats{}
	}
	return k.known.Stats(t.Num)
}

// expired estimates how many entries of a table have expired for every reader.
func (k *picker) expired(t *kv.TableMeta) uint64 {
	s := k.stats(t)
	return s.Expired(k.known.Now)
}
