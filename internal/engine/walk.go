package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/wal"
)

// Walk calls visit once for each key of a stopped store, with the value that Open would
// find, and changes no file. The order is not that of the keys; all keys are read at one
// version and one time. Key and value are borrowed until visit returns. Other processes may
// read the store meanwhile, but not serve it.
//
// What the log holds is kept within Options.MemtableBytes: if there is more, Walk makes
// several passes, each over the keys whose hashes lie in one interval. Writes of one key
// cannot be divided, and each pass keeps the range deletes of its partitions.
//
// Errors: those of Open with Options.ReadOnly, those of a scan, the error of ctx.
// Cost: reads the log once, and once more for each pass, and each partition once for each
// pass that it has keys in.
func Walk(ctx context.Context, dir string, o Options, visit func(key, value []byte)) error {
	_, err := walkStore(ctx, dir, o, visit)
	return err
}

// walkSlices is into how many intervals of equal length hashes are divided. A pass has one
// or several. Not less than there are partitions.
const walkSlices = 4096

// walkEntryBytes is what a memtable needs for an entry besides its key and value. Measured
// with TestAWalkStaysWithinItsBudget.
const walkEntryBytes = 96

// walker is the state of one Walk.
type walker struct {
	e     *Engine
	ctx   context.Context
	visit func(key, value []byte)

	log     wal.Options
	last    kv.SeqNum
	now     uint64      // the time of the first pass; 0: it has not begun
	flushed []kv.SeqNum // by partition: what tables have

	passes int
	most   int64 // bytes in memtables in the largest pass
}

func walkStore(ctx context.Context, dir string, o Options, visit func(key, value []byte)) (_ *walker, err error) {
	defer o.Events.Guard()
	o.ReadOnly = true
	o.maxSnapshotAge = math.MaxInt64 // no compaction waits for the walk
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	e, err := newLocked(dir, o, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	w := &walker{e: e, ctx: ctx, visit: visit}
	sizes, err := w.survey()
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	for low := 0; low < walkSlices; {
		high := nextPass(sizes, low, o.MemtableBytes)
		if err := w.pass(low, high); err != nil {
			return nil, err
		}
		low = high
	}
	return w, nil
}

// nextPass returns the end of the longest run of slices from low on that needs no more than
// limit, but at least one slice.
func nextPass(sizes []int64, low int, limit int64) (high int) {
	need := sizes[low]
	for high = low + 1; high < len(sizes) && need+sizes[high] <= limit; high++ {
		need += sizes[high]
	}
	return high
}

// survey reads the log once, and returns what the memtables of each slice will need.
func (w *walker) survey() (sizes []int64, err error) {
	e := w.e
	if err := e.openShared(); err != nil {
		return nil, err
	}
	if err := e.openPartitions(0, e.descriptor.Partitions); err != nil {
		return nil, err
	}
	w.log = e.logOptions()
	for _, p := range e.partitions {
		w.flushed = append(w.flushed, p.FlushedSeq())
	}
	if err := w.closePartitions(); err != nil {
		return nil, err
	}
	sizes = make([]int64, walkSlices)
	recovery, err := wal.Replay(w.log, func(r wal.Record) error {
		return w.each(r, func(op *record.Op) {
			if op.Kind != kv.KindRangeDelete {
				sizes[sliceOf(op.Key)] += int64(len(op.Key)+len(op.Value)) + walkEntryBytes
			}
		})
	})
	w.last = recovery.NextSeq - 1
	e.sequencer.start(w.last)
	return sizes, err
}

func sliceOf(key []byte) int { return keyhash.Partition(keyhash.Sum(key), walkSlices) }

// each calls f with the operations of a record that are not in tables.
func (w *walker) each(r wal.Record, f func(op *record.Op)) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if len(r.Payload) == 0 {
		return nil
	}
	return record.Decode(r.Payload, func(op *record.Op) error {
		if err := checkReplayed(r, op, len(w.flushed)); err != nil {
			return err
		}
		if r.Base+kv.SeqNum(op.Unit) > w.flushed[op.Partition] {
			f(op)
		}
		return nil
	})
}

// pass visits the keys of the slices from low to before high.
func (w *walker) pass(low, high int) (err error) {
	e := w.e
	n := len(w.flushed)
	first, end := low*n/walkSlices, (high*n+walkSlices-1)/walkSlices
	defer func() { err = errors.Join(err, w.closePartitions()) }()
	if err := e.openPartitions(first, end); err != nil {
		return err
	}
	_, err = wal.Replay(w.log, func(r wal.Record) error {
		return w.each(r, func(op *record.Op) {
			if op.Partition < first || op.Partition >= end {
				return
			}
			if slice := sliceOf(op.Key); op.Kind == kv.KindRangeDelete || low <= slice && slice < high {
				e.partitions[op.Partition-first].Replay(r.Base, op)
			}
		})
	})
	if err != nil {
		return err
	}
	w.passes, w.most = w.passes+1, max(w.most, e.budget.used())
	for _, p := range e.partitions {
		p.StartReading(w.last)
	}
	return w.scan(low, high)
}

// closePartitions makes room for the next pass. Without the collection the memtables of two
// passes would be in memory.
func (w *walker) closePartitions() error {
	err := w.e.closePartitions()
	w.e.partitions, w.e.own.coordinators = nil, nil
	w.e.budget = w.e.emptyBudget(math.MaxInt64) // it asks no memtable to be sealed
	runtime.GC()
	return err
}

// scan visits the keys of the slices in the partitions that are open.
func (w *walker) scan(low, high int) (err error) {
	s, err := w.e.Scan(w.ctx, kv.Range{}, kv.ScanOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if w.now == 0 {
		w.now = s.now
	}
	s.now = w.now
	for s.Next() {
		item := s.Item()
		if slice := sliceOf(item.Key); low <= slice && slice < high {
			w.visit(item.Key, item.Value)
		}
	}
	return s.Err()
}
