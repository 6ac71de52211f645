package commit

import (
	"bytes"
	"errors"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/record"
)

// changedLocked returns a *kv.ConflictError if something that was read has been written
// since, or has expired although it must not, or partition.ErrStale. The caller holds appendMu:
// whatever was appended before is in a memtable or in line for one, and nothing comes in
// between. It does no I/O.
func (c *Coordinator) changedLocked(r *partition.Reads) error {
	if err := r.Expired(c.opts.Now); err != nil {
		return err
	}
	if r.Empty() || c.line.last <= r.At {
		return nil
	}
	for _, rec := range c.line.inflight {
		if rec.units > 0 && rec.last() > r.At {
			if err := c.writes(rec, r); err != nil {
				return err
			}
		}
	}
	return c.tree.Changed(r)
}

// overtakenLocked is changedLocked for a write of a group that is being laid out in the record rec: an
// earlier write of rec itself may be what changed a key.
func (c *Coordinator) overtakenLocked(r *partition.Reads, g *WriteGroup, rec *pending) error {
	err := c.changedLocked(r)
	for i := 0; i < len(r.Keys) && err == nil; i++ {
		if rec.rangeDeletes || c.written.has(rec.hashes, r.Keys[i].Hash) {
			conflict := &kv.ConflictError{Key: bytes.Clone(r.Keys[i].Key)}
			rec.conflicts = append(rec.conflicts, conflictWithin{g, conflict})
			err = conflict
		}
	}
	if err != nil && !errors.Is(err, partition.ErrStale) {
		c.stats.conflicts.Add(1)
	}
	return err
}

// conflictWithin is a conflict with a write of the same record, which has no number yet.
type conflictWithin struct {
	group *WriteGroup
	err   *kv.ConflictError
}

// number tells the conflict the last number of the record, unless its caller has given up.
func (w conflictWithin) number(last kv.SeqNum) {
	w.group.mu.Lock()
	defer w.group.mu.Unlock()
	if !w.group.abandoned {
		w.err.Version = last
	}
}

// writtenKeys finds a hash among those of the record that is being laid out: few by looking at each,
// more by a set, as otherwise a call of a million conditional writes would take minutes.
type writtenKeys struct {
	set map[uint64]struct{}
	n   int // how many of the record's hashes are in it
}

const fewHashes = 256

// has reports whether hash is among hashes, which only grow until reset.
func (k *writtenKeys) has(hashes []uint64, hash uint64) bool {
	if len(hashes) <= fewHashes {
		return slices.Contains(hashes, hash)
	}
	if k.set == nil {
		k.set = make(map[uint64]struct{}, 2*len(hashes))
	}
	for _, h := range hashes[k.n:] {
		k.set[h] = struct{}{}
	}
	k.n = len(hashes)
	_, found := k.set[hash]
	return found
}

func (k *writtenKeys) reset() { *k = writtenKeys{} }

// readsOfLocked returns the read of one key in memory that the next call uses again.
func (c *Coordinator) readsOfLocked(found *kv.Lookup) *partition.Reads {
	key := partition.ReadKey{Key: found.Key, Hash: found.Hash}
	c.reads.Reset()
	c.reads.Read(key, found.ReadVersion)
	c.reads.Expires(key, found.Expiry)
	return &c.reads
}

// BetweenRecords calls f while none of the coordinators, which are in ascending order of their
// partitions, appends a record: not even one that it has checked already. So f may append a record
// that changes by what the others are checked, such as the time. It does no I/O.
func BetweenRecords(coordinators []*Coordinator, f func()) {
	for _, c := range coordinators {
		c.appendMu.Lock()
		defer c.appendMu.Unlock()
	}
	f()
}

// writes returns a conflict if a record in line writes what was read.
func (c *Coordinator) writes(rec *pending, r *partition.Reads) error {
	for _, k := range r.Keys {
		if slices.Contains(rec.hashes, k.Hash) {
			return partition.Conflict(k.Key, rec.last())
		}
	}
	if !rec.rangeDeletes && len(r.Ranges) == 0 {
		return nil
	}
	return record.Decode(rec.payload, func(op *record.Op) error {
		if op.Partition != c.opts.ID {
			return nil
		}
		e := kv.Entry{Key: op.Key, Value: op.Value, Kind: op.Kind, Seq: rec.last()}
		return r.TouchedBy(&e)
	})
}
