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
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/wal"
)

// readRunners is how many read batches of one partition run at a time. With two,
// a batch that waits for the disk does not hold up one answered from memory;
// more runners make smaller batches.
const readRunners = 2

// Partition is one LSM tree. Safe for concurrent use, unless a method says
// otherwise.
type Partition struct {
	id        int
	opts      Options
	log       CommitLog
	sequencer Sequencer
	budget    Budget
	events    *event.Listener

	inbox *batcher.Inbox[*Group]
	reads *batcher.Combiner[readGroup]
	role  role

	// turn is held for the moment of judging and appending a record, so that records
	// enter inflight in the order of the log. A proposal over several partitions
	// holds all their turns, taken in ascending order.
	turn struct {
		sync.Mutex
		inflight []*pending
		levels   levelCounts // of inflight
		marks    []*readMark // in the order of the log
		last     kv.SeqNum   // newest number in this partition
		names    *nameWindow
	}
	inflightBytes atomic.Int64
	noRoom        atomic.Bool // the log has no room for what is taken; roomWaker ends it

	published atomic.Uint64          // readers may see every number up to this one
	early     atomic.Pointer[early]  // and these beyond it, if they read single keys
	arriving  atomic.Pointer[Commit] // inserted here, perhaps not everywhere
	state     atomic.Pointer[readState]
	swap      sync.Mutex // held while state is replaced; no I/O under it
	seal      sealRequest

	// Of whoever has the role (before Start: of recovery).
	active    *memtable.Table
	activePos wal.Pos // of the last record inserted into active
	entry     kv.Entry
	taken     []*Group // of the inbox, not yet in the log
	spare     []*pending

	files    *manifest.Set
	tables   tableSet
	values   *valuefile.Set
	flushing sync.Mutex // one flush at a time: see the package comment
	merging  sync.Mutex // one compaction at a time
	showing  sync.Mutex // see showCurrent; taken under the two above

	closing atomic.Bool
	life    context.Context // ends when Close begins: flushes and compactions end with it
	end     context.CancelFunc
	states  sync.WaitGroup // read states, but for the closed one
	started bool
	stopped chan struct{} // closed when the orchestrator is gone
	stats   counters
}

// Create makes the directory of an empty partition. It may be repeated after a
// crash at any point.
func Create(o Options) error { return manifest.Create(o.FS, o.Dir, uint32(o.ID)) }

// Open reads the manifest and opens the tables. The partition then takes what
// the log holds, through Replay, and starts to serve with Start. Close it in any
// case.
func Open(o Options) (*Partition, error) {
	p := &Partition{
		id:        o.ID,
		opts:      o,
		sequencer: o.Sequencer,
		budget:    o.Budget,
		events:    o.Events,
		stopped:   make(chan struct{}),
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.role.init()
	p.turn.names = newNameWindow(o.Names)
	p.inbox = batcher.NewInbox[*Group](o.Writes, p.Wake)
	p.reads = batcher.NewCombiner(o.Reads, readRunners, p.serveReads)
	files, err := manifest.Open(manifest.Options{
		FS: o.FS, Dir: o.Dir, Partition: uint32(o.ID), Obsolete: p.removeFile, Listener: o.Events,
		ReadOnly: o.ReadOnly,
	})
	if err != nil {
		return nil, err
	}
	p.files = files
	p.tables.init()
	p.values = valuefile.NewSet(p.openValues)
	levels, err := p.openLevels(files.Acquire())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open partition %d: %w", o.ID, err), p.tables.closeAll())
	}
	p.active = memtable.New(memtable.Options{})
	p.state.Store(p.newReadState(p.active, nil, levels))
	p.published.Store(uint64(levels.version.FlushedSeq))
	return p, nil
}

// Replay applies this partition's operations of one record of the log, unless a
// table has them. Before Start only; not safe for concurrent use.
func (p *Partition) Replay(base kv.SeqNum, op *record.Op) {
	version := base + kv.SeqNum(op.Unit)
	if op.RequestID.Named() {
		if _, _, known := p.turn.names.find(nameOf(op.RequestID)); !known {
			p.turn.names.add(nameOf(op.RequestID), version, op.RequestID.Content)
		}
	}
	if version <= p.FlushedSeq() {
		return
	}
	before := p.active.Bytes()
	p.insertOp(base, op)
	p.budget.Grew(p, p.active.Bytes()-before)
}

// Start begins to serve. The log was replayed from number first on, and up to
// last; everything in it is visible.
func (p *Partition) Start(log CommitLog, first, last kv.SeqNum) {
	p.log = log
	p.activePos = log.Synced() // recovery synced all it replayed
	p.StartReading(first, last)
	p.started = true
	go p.orchestrate()
}

// StartReading is Start of a partition that takes no writes.
func (p *Partition) StartReading(first, last kv.SeqNum) {
	p.published.Store(uint64(last))
	p.turn.last = last
	p.turn.names.floor = max(p.turn.names.floor, first-1)
}

// Close refuses what comes from now on, waits until everything taken is decided,
// ends flushes and compactions, waits for reads that have begun, open walks among
// them, and then closes the files. The log must still be working, or have failed.
// Idempotent.
func (p *Partition) Close() error {
	p.inbox.Close() // before closing is set, after which the orchestrator may be gone
	if p.closing.Swap(true) {
		return nil
	}
	p.end()
	p.Wake()
	if p.started {
		<-p.stopped
	}
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

// closedError says why nothing is taken any more.
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

func (p *Partition) path(name string) string { return path.Join(p.opts.Dir, name) }
