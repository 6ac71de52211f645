package partition

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/memtable"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/wal"
)

// readRunners is how many read batches of one partition run at a time. With two, a batch
// that waits for the disk does not delay one that is answered from memory; more runners
// make smaller batches.
const readRunners = 2

// While batches wait for the disk, waitingRunners take the place of readRunners: they need
// no processor, and a device serves many reads at a time. A batch then has at most
// waitingOps keys, as many as sstable.GetBatch reads concurrently; the keys of a longer one
// would wait for each other while runners are free.
const (
	waitingRunners = 8
	waitingOps     = 8
)

// Partition is one LSM tree. Safe for concurrent use, unless a method says
// otherwise.
type Partition struct {
	id        int
	opts      Options
	log       Log
	sequencer Sequencer
	budget    Budget
	events    *event.Listener

	reads *batcher.Combiner[readGroup]

	visible visible
	state   atomic.Pointer[readState]
	swap    sync.Mutex // held while state is replaced; no I/O under it
	seal    sealRequest
	writer  Writer

	// Of the goroutine that applies records (before Start: of recovery).
	active    *memtable.Table
	activePos wal.Pos // of the last record inserted; 0: all were replayed, and recovery synced them
	entry     kv.Entry

	files    *manifest.Set
	tables   tableSet
	values   *valuefile.Set
	cached   *sstable.Values // of the value files
	flushing sync.Mutex      // one flush at a time: see the package comment
	merging  sync.Mutex      // one compaction at a time
	showing  sync.Mutex      // see showCurrent; taken under the two above

	damaged damagedFiles

	closing atomic.Bool
	life    context.Context // ends when Close begins: flushes and compactions end with it
	end     context.CancelFunc
	states  sync.WaitGroup // read states, but for the closed one
	started bool
	stats   counters
}

// Create makes the directory of an empty partition. It may be repeated after a
// crash at any point.
func Create(o Options) error { return manifest.Create(o.FS, o.Dir, uint32(o.ID)) }

// Open reads the manifest and opens the tables. The caller then replays the log (Replay) and
// calls Start. Close must be called in any case.
func Open(o Options) (*Partition, error) {
	p := &Partition{
		id:        o.ID,
		opts:      o,
		sequencer: o.Sequencer,
		budget:    o.Budget,
		events:    o.Events,
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.reads = batcher.NewCombiner(o.Reads, readRunners, p.serveReads)
	files, err := manifest.Open(manifest.Options{
		FS: o.FS, Dir: o.Dir, Partition: uint32(o.ID), Obsolete: p.removeFile, Listener: o.Events,
		ReadOnly: o.ReadOnly, AllowDamaged: o.AllowDamaged,
	})
	if err != nil {
		return nil, err
	}
	p.files = files
	p.tables.init()
	p.values = valuefile.NewSet(p.openValues)
	p.cached = o.Cache.NewValues()
	levels, err := p.openLevels(files.Acquire())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open partition %d: %w", o.ID, err), p.tables.closeAll())
	}
	p.active = memtable.New(memtable.Options{})
	p.state.Store(p.newReadState(p.active, nil, levels))
	p.visible.published.Store(uint64(levels.version.FlushedSeq))
	return p, nil
}

// Replay applies one of this partition's operations of a record of the log, unless a table has
// it. Recovery calls it before Start; a member of a cluster, whose log is replayed while the
// store is open, calls it later too, on the goroutine that applies records.
func (p *Partition) Replay(base kv.SeqNum, op *record.Op) {
	if base+kv.SeqNum(op.Unit) <= p.FlushedSeq() {
		return
	}
	before := p.active.Bytes()
	p.insertOp(base, op)
	p.budget.Grew(p, p.active.Bytes()-before)
}

// Attach sets the Writer that will apply records. It is called before Replay and Start.
func (p *Partition) Attach(w Writer) { p.writer = w }

// Start enables flushes, and makes everything that was replayed, up to number last,
// visible.
func (p *Partition) Start(log Log, last kv.SeqNum) {
	p.log = log
	p.StartReading(last)
	p.started = true
}

// StartReading is Start of a partition that takes no writes.
func (p *Partition) StartReading(last kv.SeqNum) { p.visible.published.Store(uint64(last)) }

// Close ends flushes and compactions, waits for reads that have begun, open walks among
// them, and then closes the files. Nothing is inserted any more. Idempotent.
func (p *Partition) Close() error {
	if p.closing.Swap(true) {
		return nil
	}
	p.end()
	err := p.closeState()
	p.states.Wait()
	return errors.Join(err, p.tables.closeAll(), p.values.Close())
}

// whileOpen returns a context that ends when Close begins. Close waits until stop has
// been called.
func (p *Partition) whileOpen(ctx context.Context) (_ context.Context, stop func(), err error) {
	s := p.acquire()
	if s.closed {
		s.release()
		return nil, nil, p.closedError()
	}
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(p.life, cancel)
	return ctx, func() {
		unlink()
		cancel()
		s.release()
	}, nil
}

// whyEnded returns the error of background work that failed with err: kv.ErrClosed
// if Close ended it.
func (p *Partition) whyEnded(err error) error {
	if errors.Is(err, context.Canceled) && p.closing.Load() {
		return p.closedError()
	}
	return err
}

// closedError returns why the partition accepts no more calls.
func (p *Partition) closedError() error {
	if p.started {
		if err := p.log.Err(); err != nil {
			return err
		}
	}
	return kv.ErrClosed
}

// ID returns the partition's number.
func (p *Partition) ID() int { return p.id }

// FlushedSeq returns the number up to which the tables hold everything.
func (p *Partition) FlushedSeq() kv.SeqNum {
	s := p.acquire()
	defer s.release()
	return s.levels.version.FlushedSeq
}

// MaxSeq returns the largest number that any table ever held.
func (p *Partition) MaxSeq() kv.SeqNum {
	s := p.acquire()
	defer s.release()
	return s.levels.version.MaxSeq
}

// AcquireFiles returns the current set of files, which stay until the caller releases it.
// It holds nothing that was not visible when it became current.
func (p *Partition) AcquireFiles() *manifest.Ref { return p.files.Acquire() }

// VerifyManifest reads CURRENT and the manifest again: see manifest.Set.Verify.
func (p *Partition) VerifyManifest() error { return p.files.Verify() }

func (p *Partition) path(name string) string { return path.Join(p.opts.Dir, name) }
