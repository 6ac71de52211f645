package partition

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/memtable"
	"github.com/kvd-db/kvd/internal/mergeiter"
	"github.com/kvd-db/kvd/internal/sstable"
)

// Reads is what a transaction has read in one partition and now depends on.
type Reads struct {
	At     kv.SeqNum // the oldest version that any of it was read at
	Keys   []ReadKey
	Ranges []kv.Range

	expires ReadKey // of the keys that must not have expired, the one that does first
	until   uint64  // when it does, by the store's clock; 0: there is none
}

// ReadKey is a key that was read, found or not.
type ReadKey struct {
	Key  []byte
	Hash uint64
}

// Read adds a key that was read at a version. Reads of different versions are judged
// by the oldest of them: what has not been written since that one has not been written
// since the others either.
func (r *Reads) Read(key ReadKey, at kv.SeqNum) {
	r.since(at)
	r.Keys = append(r.Keys, key)
}

// Scanned sets the ranges that were read, at a version: see Read. The slice is shared.
func (r *Reads) Scanned(ranges []kv.Range, at kv.SeqNum) {
	r.since(at)
	r.Ranges = ranges
}

// Expires records that a key was present when it was read, and when it expires: from then
// on it counts as changed. An expiry of zero means never.
func (r *Reads) Expires(key ReadKey, expiry uint64) {
	if expiry != 0 && (r.until == 0 || expiry < r.until) {
		r.expires, r.until = key, expiry
	}
}

// Expired returns a *kv.ConflictError if a key has expired that must not have, at the time that
// clock returns. The conflict has the version from which on it is that time for readers, which
// clock returns too; 0: it is already.
func (r *Reads) Expired(clock func() (now uint64, from kv.SeqNum)) error {
	if r.until == 0 {
		return nil
	}
	if now, from := clock(); r.until <= now {
		return Conflict(r.expires.Key, max(r.At, from))
	}
	return nil
}

func (r *Reads) since(at kv.SeqNum) {
	if r.Empty() || at < r.At {
		r.At = at
	}
}

// Reset forgets everything and keeps the memory for keys.
func (r *Reads) Reset() {
	clear(r.Keys)
	*r = Reads{Keys: r.Keys[:0]}
}

// Empty reports whether nothing was read.
func (r *Reads) Empty() bool { return len(r.Keys) == 0 && len(r.Ranges) == 0 }

// ErrStale reports reads so old that memory no longer tells whether they still
// hold. Nothing was done; Refresh them and try again.
var ErrStale = errors.New("reads are older than the memtables")

// Changed returns a *kv.ConflictError if the memtables have something newer than what was
// read, ErrStale if they do not reach back that far, or why the partition is closed.
//
// It does no I/O. Keys cost what a Get of the memtables costs, ranges a step for
// each operation since the reads. Two keys with one 64-bit hash are taken for one.
func (p *Partition) Changed(r *Reads) error {
	s := p.acquire()
	defer s.release()
	switch {
	case s.closed: // it lacks the sealed memtables
		return p.closedError()
	case r.At < s.levels.version.FlushedSeq:
		return ErrStale
	}
	for t := range s.memtables() {
		if err := r.changedIn(t); err != nil {
			return err
		}
	}
	return nil
}

// changedIn returns a conflict if t has something newer.
func (r *Reads) changedIn(t *memtable.Table) (err error) {
	if t.MaxSeq() <= r.At {
		return nil
	}
	var e kv.Entry
	for _, k := range r.Keys {
		if t.Get(k.Hash, k.Key, kv.MaxSeqNum, &e) && e.Seq > r.At {
			return Conflict(k.Key, e.Seq)
		}
		if covered := t.Cover(k.Key, kv.MaxSeqNum); covered > r.At {
			return Conflict(k.Key, covered)
		}
	}
	if len(r.Ranges) == 0 {
		return nil
	}
	t.WrittenSince(r.At, func(e *kv.Entry) bool {
		err = r.TouchedBy(e)
		return err == nil
	})
	return err
}

// TouchedBy returns a conflict if an entry, which is newer than the reads, writes
// what was read.
func (r *Reads) TouchedBy(e *kv.Entry) error {
	span := kv.Range{Start: e.Key, End: e.Value}
	for _, k := range r.Keys {
		if e.Kind == kv.KindRangeDelete && span.Contains(k.Key) {
			return Conflict(k.Key, e.Seq)
		}
	}
	for _, read := range r.Ranges {
		if read.Contains(e.Key) || e.Kind == kv.KindRangeDelete && span.Contains(read.Start) {
			return Conflict(e.Key, e.Seq)
		}
	}
	return nil
}

// Conflict returns a *kv.ConflictError: key was written at a version.
func Conflict(key []byte, version kv.SeqNum) error {
	return &kv.ConflictError{Key: bytes.Clone(key), Version: version}
}

// Refresh advances the version of stale reads to the newest visible one if nothing that was
// read has changed since; otherwise it returns a *kv.ConflictError. It may read tables.
//
// The version of the reads must be that of a live snapshot until Refresh returns: otherwise
// a compaction may have dropped the tombstone of a key that was read, and with it the only
// evidence of the change.
func (p *Partition) Refresh(r *Reads) error {
	s, now, _ := p.acquireVisible()
	defer s.release()
	if s.closed {
		return p.closedError()
	}
	for _, k := range r.Keys {
		written, err := p.lastWritten(s, k, now)
		if err != nil {
			return err
		}
		if written > r.At {
			return Conflict(k.Key, written)
		}
	}
	for _, read := range r.Ranges {
		if err := s.changedBetween(r, read, now); err != nil {
			return err
		}
	}
	r.At = now
	return nil
}

// lastWritten returns the number of the newest entry, at most at, that concerns a key; 0 if
// there is none.
func (p *Partition) lastWritten(s *readState, k ReadKey, at kv.SeqNum) (kv.SeqNum, error) {
	var e kv.Entry
	for t := range s.memtables() {
		covered := t.Cover(k.Key, at)
		if t.Get(k.Hash, k.Key, at, &e) {
			return max(e.Seq, covered), nil
		}
		if covered > 0 {
			return covered, nil
		}
	}
	q := sstable.Query{Key: k.Key, Hash: k.Hash, At: at}
	s.levels.runs(func(run *run) bool {
		if table := run.find(k.Key); table >= 0 {
			run.readers[table].Get(&q)
		}
		return !q.Done
	})
	if err := q.Err; err != nil {
		if errors.Is(err, kv.ErrCorrupt) {
			p.corrupt(err)
		}
		return 0, fmt.Errorf("look when a key was last written: %w", err)
	}
	return q.Seq, nil
}

// changedBetween returns a conflict if something in the range was written after
// the reads and not after now.
func (s *readState) changedBetween(r *Reads, read kv.Range, now kv.SeqNum) error {
	for _, covers := range s.covers() {
		for _, t := range covers.All() {
			if t.Seq > r.At && t.Seq <= now {
				if err := (&Reads{Ranges: []kv.Range{read}}).TouchedBy(&t); err != nil {
					return err
				}
			}
		}
	}
	it := mergeiter.Bounded(mergeiter.New(s.iterators(read)...), read)
	var err error
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		if e := it.Entry(); e.Seq > r.At && e.Seq <= now {
			err = Conflict(e.Key, e.Seq)
		}
	}
	return errors.Join(err, it.Close())
}
