package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// Scanner walks a range in key order, or backward, over all partitions, at one
// version. It reads ahead in batches: see source. Used by one goroutine at a time.
//
//	C1. It returns exactly what its version holds, in order, or ends with an error.
//	C2. Between two calls of Next it holds files and memtables for some two
//	    seconds at most, and its version no longer than its lease.
//
// Locks: shared, then the lock of a source, then mu.
type Scanner struct {
	e      *Engine
	ctx    context.Context
	bounds kv.Range
	opts   kv.ScanOptions
	at     kv.SeqNum
	now    uint64        // keys that expire by then are gone
	age    time.Duration // how long the version is kept, if it has a pin

	// Of the caller's goroutine alone.
	feed *feed  // nil before the first Next, and after Close
	left uint64 // items up to the limit
	item *kv.Item
	done bool

	large  kv.Item // the current item, if its value was read for itself
	lookup kv.Lookup
	reads  [1]*kv.Lookup
	shares [1]partition.ReadShare

	helpers sync.WaitGroup // started by sources that have not ended

	// shared is the feed for goroutines that release its files and memtables: the
	// maintenance loop and Engine.Close.
	shared struct {
		sync.Mutex
		feed *feed
	}
	mu struct {
		sync.Mutex
		pin    *pin // nil if the version is that of a snapshot
		err    error
		end    bool // everything has been read
		closed bool
	}
}

// refreshAfter is how long a Scanner holds the same files. After that it opens its walks
// again at its position, at the same version, so that a slow reader does not keep files
// that compaction has replaced.
const refreshAfter = time.Second

// Scan returns a Scanner over a range, at the version of a live snapshot, or, if
// o.At is zero, at one that holds every write acknowledged before the call. The caller
// must close it; until then compaction keeps the versions that it can see, but
// no longer than the snapshot's lease or, without one, Options.maxSnapshotAge.
// The scan ends when ctx does.
//
// Errors: kv.ErrVersionGone if no live snapshot has the version; kv.ErrClosed,
// the store's failure, the error of ctx.
func (e *Engine) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (*Scanner, error) {
	defer e.events.Guard()
	if e.closed.Load() {
		return nil, kv.ErrClosed
	}
	bounds := kv.Range{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End)}
	s := &Scanner{e: e, ctx: ctx, bounds: bounds, opts: o, at: o.At, left: o.Limit, age: e.opts.maxSnapshotAge}
	if o.Limit == 0 {
		s.left = math.MaxUint64
	}
	if o.At == 0 {
		p, err := e.pin(ctx, o.Fresh)
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
	defer s.e.events.Guard()
	if s.done || s.left == 0 {
		return s.finish()
	}
	if s.feed == nil {
		if !s.begin() {
			return s.finish()
		}
	} else if m := s.feed.merge; m.sources[m.tree.Winner()].step() {
		m.advance()
	} else if !s.take(m.tree.Winner()) {
		return s.finish()
	} else {
		m.begin()
	}
	if s.item = s.feed.merge.winner(); s.item == nil || scanbatch.Deferred(s.item) && !s.readLarge() {
		return s.finish()
	}
	s.left--
	return true
}

// readLarge reads the value of the current item, which the batch left out, so that a scan
// holds one large value at a time instead of several of each partition.
func (s *Scanner) readLarge() bool {
	s.e.waiters.begin()
	defer s.e.waiters.end()
	s.large = kv.Item{} // release the last value before memory for this one is taken
	p, l := s.e.partitions[s.feed.merge.tree.Winner()], &s.lookup
	s.reads[0] = l
	for {
		*l = kv.Lookup{Key: s.item.Key, Hash: keyhash.Sum(s.item.Key), Budget: s.opts.Budget}
		if l.Budget != nil {
			l.Budget.Reset(math.MaxInt)
		}
		s.shares[0] = partition.ReadShare{Partition: p, Reads: s.reads[:]}
		partition.LookupAt(s.shares[:], s.at, s.now)
		if !s.goOn() { // after the read, which counts only if the version was kept until now
			return false
		}
		if l.Budget == nil || l.Budget.Short() == 0 {
			break
		}
		if !s.fail(l.Budget.Await(s.ctx)) {
			return false
		}
	}
	if l.Err == nil && (!l.Found || l.Version != s.item.Version) {
		l.Err = fmt.Errorf("engine: a scan at version %d found version %d of a key, and a read at that version another one", s.at, s.item.Version)
	}
	s.large = *s.item
	s.large.Value, s.item = l.Value, &s.large
	return s.fail(l.Err)
}

// finish marks the scan as ended. It returns false.
func (s *Scanner) finish() bool {
	if !s.done {
		s.done = true
		s.mu.Lock()
		s.mu.end = true
		s.mu.Unlock()
	}
	return false
}

// begin opens a walk of each partition and reads its first batch.
func (s *Scanner) begin() bool {
	if !s.goOn() {
		return false
	}
	s.e.waiters.begin()
	defer s.e.waiters.end()
	s.e.company.MeetReader()
	r := newFeed(s)
	s.shared.Lock()
	s.feed, s.shared.feed = r, r
	s.shared.Unlock()
	r.open(time.Now())
	for i := range r.sources {
		if i == 0 && !s.goOn() { // with the walks open: see snapshots
			return false
		}
		if !s.fetch(i) {
			return false
		}
	}
	s.feed.merge.begin()
	return true
}

// take hands the merge the next batch of a source, if the scan may continue.
func (s *Scanner) take(i int) bool {
	s.e.waiters.begin()
	defer s.e.waiters.end()
	return s.goOn() && s.fetch(i)
}

func (s *Scanner) fetch(i int) bool {
	b, err := s.feed.sources[i].take(s.left)
	s.feed.merge.take(i, b.Items)
	return s.fail(err)
}

// goOn reports whether the scan may continue. If not, it ends the scan with the reason.
func (s *Scanner) goOn() bool { return s.fail(s.goesOn()) }

// goesOn returns why the scan may not continue, or nil.
func (s *Scanner) goesOn() error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.e.closed.Load() {
		return kv.ErrClosed
	}
	return s.kept()
}

// kept returns nil while the version is kept for the scan, otherwise kv.ErrVersionGone or
// the error that has ended the scan.
func (s *Scanner) kept() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return s.mu.err
	}
	if s.mu.closed {
		return kv.ErrClosed
	}
	return s.keptLocked()
}

func (s *Scanner) keptLocked() error {
	if s.opts.At != 0 {
		_, err := s.e.snapshots.find(s.opts.At)
		return err
	}
	if s.mu.pin == nil || time.Since(s.mu.pin.since) >= s.age {
		return versionGone(s.at)
	}
	return nil
}

// fail ends the scan with an error, and reports whether there was none.
func (s *Scanner) fail(err error) bool {
	if err == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err == nil && !s.mu.closed {
		s.mu.err = err
		if errors.Is(err, kv.ErrCorrupt) {
			s.e.corrupt(err)
		}
	}
	return false
}

// restIfDue releases files and memtables that the Scanner has held for longer than
// refreshAfter, and its version if the time of that is over.
func (s *Scanner) restIfDue(now time.Time) {
	s.shared.Lock()
	defer s.shared.Unlock()
	gone := s.letGo()
	if s.shared.feed != nil {
		for i := range s.shared.feed.sources {
			s.shared.feed.sources[i].restIfDue(now, gone)
		}
	}
}

// letGo releases the version if its time is over, and reports whether it is.
func (s *Scanner) letGo() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	err := s.keptLocked()
	if err != nil && !s.mu.end && s.mu.err == nil {
		s.mu.err = err
	}
	if err != nil && s.mu.pin != nil {
		s.e.sequencer.release(s.mu.pin)
		s.mu.pin = nil
	}
	return err != nil
}

// Item returns the current item, borrowed until Next or Close, but for a value of more than
// kv.LargeValue. The caller must not write to its value, which other readers may share.
func (s *Scanner) Item() *kv.Item { return s.item }

// Version returns the version that the scan reads.
func (s *Scanner) Version() kv.SeqNum { return s.at }

// Err returns why Next returned false, nil at the end of the range or at the limit.
func (s *Scanner) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// Close releases what the scan holds. Idempotent.
func (s *Scanner) Close() error {
	defer s.e.events.Guard()
	s.e.scans.remove(s)
	err := s.stop(nil)
	s.done = true
	if s.feed != nil {
		s.shared.Lock()
		s.shared.feed = nil
		s.shared.Unlock()
		s.feed.free()
		s.feed = nil
	}
	return err
}

// stop ends the scan for the reason given and releases what it holds. The caller of Next
// may still use the current item.
func (s *Scanner) stop(reason error) error {
	s.mu.Lock()
	first := !s.mu.closed
	s.mu.closed = true
	if first && !s.mu.end && s.mu.err == nil {
		s.mu.err = reason
	}
	s.mu.Unlock()

	err := s.closeSources()
	s.helpers.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.pin != nil {
		s.e.sequencer.release(s.mu.pin)
		s.mu.pin = nil
	}
	return err
}

func (s *Scanner) closeSources() error {
	s.shared.Lock()
	defer s.shared.Unlock()
	if s.shared.feed == nil {
		return nil
	}
	return s.shared.feed.close()
}

// scans are the open Scanners, for the maintenance loop and for Close.
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

// rest makes idle Scanners release files, and versions whose time is over.
func (s *scans) rest(now time.Time) {
	for _, scanner := range s.list() {
		scanner.restIfDue(now)
	}
}

// end stops all Scanners for the reason given.
func (s *scans) end(reason error) error {
	var errs []error
	for _, scanner := range s.list() {
		errs = append(errs, scanner.stop(reason))
	}
	return errors.Join(errs...)
}
