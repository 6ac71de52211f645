package engine

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/mergeiter"
)

// Scanner walks a range in key order, or backward, over all partitions, at one
// version. It reads ahead in chunks. Used by one goroutine at a time.
//
//	C1. It gives what its version holds, in order, and nothing else; or it ends
//	    with an error.
//	C2. Between two calls of Next it holds files and memtables for some two
//	    seconds at most, and its version no longer than its lease.
type Scanner struct {
	e      *Engine
	ctx    context.Context
	bounds kv.Range
	opts   kv.ScanOptions
	at     kv.SeqNum
	now    uint64 // keys that expire by then are gone

	// Of the caller's goroutine alone.
	chunk []kv.Item // read ahead
	next  int       // the first of chunk that Next has not given yet
	arena []byte    // keys and values of chunk
	count uint64    // items read

	// mu is held while a chunk is read, and by whoever takes the iterators away from
	// a Scanner at rest.
	mu struct {
		sync.Mutex
		pin    *pin        // nil if the version is that of a snapshot
		merged kv.Iterator // stands on the last item of chunk; nil: to be opened
		opened time.Time
		last   []byte // the key of the last item read, nil before the first
		err    error
		end    bool // there is nothing more to read
		closed bool
	}
}

// refreshAfter is how long a Scanner holds on to the same files. After that it
// opens new iterators where it stands, at the same version, so that a slow
// reader does not keep files that compaction has replaced.
const refreshAfter = time.Second

// A chunk grows from minChunk items to maxChunk, so that a scan for a few items
// does not read many, and is cut at chunkBytes. Guessed: a lock, a look at the
// clock and one at the lease are nothing to 256 items of some 200 ns, and a slow
// reader holds this much memory.
const (
	minChunk   = 8
	maxChunk   = 256
	chunkBytes = 64 << 10
)

// Scan returns a Scanner over a range, at the version of a live snapshot, or, if
// o.At is zero, at one that holds every write acknowledged before the call. It
// must be closed; until then compaction keeps the versions that it can see, but
// no longer than the snapshot's lease or, without one, Options.MaxSnapshotAge.
// ctx ends the scan when it ends.
//
// Errors: kv.ErrVersionGone if no live snapshot has the version; kv.ErrClosed,
// the store's failure, the error of ctx.
func (e *Engine) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (*Scanner, error) {
	if e.closed.Load() {
		return nil, kv.ErrClosed
	}
	bounds := kv.Range{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End)}
	s := &Scanner{e: e, ctx: ctx, bounds: bounds, opts: o, at: o.At}
	if o.At == 0 {
		p, err := e.pin(ctx)
		if err != nil {
			return nil, err
		}
		s.mu.pin, s.at, s.now = p, p.at, p.now
	} else {
		now, err := e.snapshots.find(o.At)
		if err != nil {
			return nil, err
		}
		s.now = now
	}
	e.scans.add(s)
	return s, nil
}

// Next moves to the next item. It returns false at the end, at the limit, and on
// an error: see Err.
func (s *Scanner) Next() bool {
	if s.next == len(s.chunk) && !s.read() {
		return false
	}
	s.next++
	return true
}

// read reads a chunk of one item at least.
func (s *Scanner) read() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := min(max(2*len(s.chunk), minChunk), maxChunk)
	s.chunk, s.arena, s.next = s.chunk[:0], s.arena[:0], 0
	if s.opts.Limit > 0 {
		size = int(min(uint64(size), s.opts.Limit-s.count))
	}
	if s.mu.err != nil || s.mu.closed || s.mu.end || size == 0 {
		return false
	}
	s.failLocked(s.ctx.Err())
	if s.e.closed.Load() {
		s.failLocked(kv.ErrClosed)
	}
	if s.mu.err != nil {
		return false
	}
	more := s.positionLocked()
	for more {
		s.take(s.mu.merged.Entry())
		if len(s.chunk) == size || len(s.arena) >= chunkBytes {
			break
		}
		more = s.stepLocked()
	}
	if !more && s.mu.err == nil {
		s.failLocked(s.mu.merged.Err())
		s.mu.end = true
		s.restLocked()
	}
	if n := len(s.chunk); n > 0 {
		s.mu.last = append(s.mu.last[:0], s.chunk[n-1].Key...)
	}
	return len(s.chunk) > 0
}

// positionLocked moves to the first item to read, with new iterators if there are
// none, or they are old.
func (s *Scanner) positionLocked() bool {
	more := false
	if s.mu.merged == nil || time.Since(s.mu.opened) > refreshAfter {
		more = s.reopenLocked()
	} else {
		more = s.stepLocked()
	}
	// With the iterators open, not before: see snapshots.
	s.failLocked(s.keptLocked())
	return more && s.mu.err == nil
}

// stepLocked moves the iterators on.
func (s *Scanner) stepLocked() bool {
	if s.opts.Reverse {
		return s.mu.merged.Prev()
	}
	return s.mu.merged.Next()
}

// reopenLocked opens iterators and moves to the first item behind the last one
// read.
func (s *Scanner) reopenLocked() bool {
	if s.restLocked(); s.mu.err != nil {
		return false
	}
	left := s.bounds
	if s.mu.last != nil && s.opts.Reverse {
		left.End = bytes.Clone(s.mu.last)
	} else if s.mu.last != nil {
		left.Start = append(bytes.Clone(s.mu.last), 0) // the least key behind it
	}
	sources := make([]kv.Iterator, len(s.e.partitions))
	for i, p := range s.e.partitions {
		sources[i] = p.NewIterator(s.at, s.now)
	}
	s.mu.merged = mergeiter.Bounded(mergeiter.New(sources...), left)
	s.mu.opened = time.Now()
	if s.opts.Reverse {
		return s.mu.merged.Last()
	}
	return s.mu.merged.First()
}

// keptLocked returns kv.ErrVersionGone if the version need not be there any more.
func (s *Scanner) keptLocked() error {
	if s.opts.At != 0 {
		_, err := s.e.snapshots.find(s.opts.At)
		return err
	}
	if s.mu.pin == nil || time.Since(s.mu.pin.since) >= s.e.opts.MaxSnapshotAge {
		return versionGone(s.at)
	}
	return nil
}

// take copies an entry to the chunk. What is in the chunk already stays where it
// is should the arena move.
func (s *Scanner) take(entry *kv.Entry) {
	from := len(s.arena)
	s.arena = append(s.arena, entry.Key...)
	item := kv.Item{Key: s.arena[from:len(s.arena):len(s.arena)], Version: entry.Seq, Expiry: entry.Expiry}
	if !s.opts.KeysOnly {
		from = len(s.arena)
		s.arena = append(s.arena, entry.Value...)
		item.Value = s.arena[from:len(s.arena):len(s.arena)]
	}
	s.chunk = append(s.chunk, item)
	s.count++
}

// failLocked ends the scan with an error, unless it is nil.
func (s *Scanner) failLocked(err error) {
	if err == nil || s.mu.err != nil {
		return
	}
	s.mu.err = err
	if errors.Is(err, kv.ErrCorrupt) {
		s.e.corrupt(err)
	}
}

// restLocked lets go of files and memtables.
func (s *Scanner) restLocked() {
	if s.mu.merged != nil {
		s.failLocked(s.mu.merged.Close())
		s.mu.merged = nil
	}
}

// restIfDue lets go of what the Scanner has held for long enough. One that reads
// just now looks for itself, and is left alone.
func (s *Scanner) restIfDue(now time.Time) {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.mu.closed {
		return
	}
	gone := s.keptLocked()
	if gone != nil || now.Sub(s.mu.opened) > refreshAfter {
		s.restLocked()
	}
	if gone != nil && !s.mu.end {
		s.failLocked(gone)
	}
	if gone != nil && s.mu.pin != nil {
		s.e.sequencer.release(s.mu.pin)
		s.mu.pin = nil
	}
}

// Item returns the current item, borrowed until Next or Close.
func (s *Scanner) Item() *kv.Item { return &s.chunk[s.next-1] }

// Version returns the version that the scan reads.
func (s *Scanner) Version() kv.SeqNum { return s.at }

// Err returns why Next returned false, nil at the end of the range.
func (s *Scanner) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// Close releases what the scan holds. Idempotent.
func (s *Scanner) Close() error {
	s.e.scans.remove(s)
	return s.stop(nil)
}

// stop ends the scan, for the reason given, and releases what it holds.
func (s *Scanner) stop(reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil
	}
	s.mu.closed = true
	var err error
	if s.mu.merged != nil {
		err = s.mu.merged.Close()
		s.mu.merged = nil
	}
	if s.mu.pin != nil {
		s.e.sequencer.release(s.mu.pin)
		s.mu.pin = nil
	}
	if !s.mu.end {
		s.failLocked(reason)
	}
	return err
}

// scans are the Scanners that are open, for the keeper and for Close.
type scans struct {
	mu   sync.Mutex
	open map[*Scanner]struct{}
}

func (s *scans) add(scanner *Scanner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*Scanner]struct{})
	}
	s.open[scanner] = struct{}{}
}

func (s *scans) remove(scanner *Scanner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, scanner)
}

func (s *scans) list() []*Scanner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.open))
}

// rest makes idle Scanners let go of files, and of versions whose time is over.
func (s *scans) rest(now time.Time) {
	for _, scanner := range s.list() {
		scanner.restIfDue(now)
	}
}

// end stops all Scanners for a reason.
func (s *scans) end(reason error) error {
	var errs []error
	for _, scanner := range s.list() {
		errs = append(errs, scanner.stop(reason))
	}
	return errors.Join(errs...)
}
