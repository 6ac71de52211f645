package commit

import (
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
