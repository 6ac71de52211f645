package partition

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/compaction"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/memtable"
	"github.com/kvd-db/kvd/internal/wal"
)

// sealedTable is a memtable that takes no more writes and waits for its flush.
type sealedTable struct {
	table *memtable.Table
	pos   wal.Pos // of its last record in the log
	bytes int64
}

// Seal asks for the active memtable to be sealed, and does not wait for it.
func (p *Partition) Seal() { p.askSeal(nil) }

// askSeal is Seal with a channel, nil or closed once the memtable is sealed.
func (p *Partition) askSeal(done chan struct{}) {
	p.seal.mu.Lock()
	p.seal.asked = true
	if done != nil {
		p.seal.done = append(p.seal.done, done)
	}
	p.seal.mu.Unlock()
	p.writer.Wake()
}

// sealRequest is a request to the goroutine that applies records.
type sealRequest struct {
	mu    sync.Mutex
	asked bool
	done  []chan struct{}
}

// take returns the request and clears it.
func (r *sealRequest) take() (asked bool, done []chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, done = r.asked, r.done
	r.asked, r.done = false, nil
	return asked, done
}

// SealIfDue seals the active memtable if it is full or Seal was called. The goroutine that
// applies records calls it, between two of them.
func (p *Partition) SealIfDue() {
	asked, done := p.seal.take()
	defer func() {
		for _, ch := range done {
			close(ch)
		}
	}()
	n := p.active.Len()
	if n == 0 {
		if asked {
			p.budget.Sealed(p, 0)
		}
		return
	}
	full := p.active.Bytes() >= p.opts.FlushBytes || (p.opts.FlushKeys > 0 && n >= p.opts.FlushKeys)
	if !asked && !full {
		return
	}
	p.sealActive()
}

// sealActive seals the active memtable, which is not empty. The goroutine that applies
// records, or recovery, calls it.
func (p *Partition) sealActive() {
	s := sealedTable{
		table: p.active, pos: p.activePos, bytes: p.active.Bytes(),
	}
	s.table.Seal()
	p.active = memtable.New(memtable.Options{})
	err := p.replace(func(old *readState) *readState {
		sealed := append([]sealedTable{s}, old.sealed...)
		return p.newReadState(p.active, sealed, old.levels.acquire())
	})
	if err != nil { // Close comes after the last call
		panic(fmt.Sprintf("partition %d: memtable sealed after Close: %v", p.id, err))
	}
	p.budget.Sealed(p, s.bytes)
	p.opts.Scheduler.Ready(p)
}

// UnflushedFrom returns the lowest number that is in a memtable and in no table,
// and whether there is one.
func (p *Partition) UnflushedFrom() (kv.SeqNum, bool) {
	p.swap.Lock()
	defer p.swap.Unlock()
	s := p.state.Load()
	oldest := s.active
	if n := len(s.sealed); n > 0 {
		oldest = s.sealed[n-1].table
	}
	low := oldest.MinSeq()
	return low, low != 0
}

// ActiveMemtable returns the smallest and the largest number in the active memtable,
// zeros if it is empty, and how many tombstones it has.
func (p *Partition) ActiveMemtable() (first, last kv.SeqNum, tombstones int) {
	t := p.state.Load().active
	return t.MinSeq(), t.MaxSeq(), t.Tombstones()
}

// FlushPending reports whether a sealed memtable waits for its flush.
func (p *Partition) FlushPending() bool {
	s := p.acquire()
	defer s.release()
	return len(s.sealed) > 0
}

// Flush writes all sealed memtables as one delta. If there is none it does nothing.
//
// The log is synced up to the last of their records first: otherwise a power cut
// could leave one partition's half of a batch in a table and lose the other's.
//
// On error the memtables stay, and the flush can be tried again unless the error
// wraps kv.ErrFailed.
func (p *Partition) Flush(ctx context.Context) error {
	p.flushing.Lock()
	defer p.flushing.Unlock()
	ctx, stop, err := p.whileOpen(ctx)
	if err != nil {
		return fmt.Errorf("flush partition %d: %w", p.id, err)
	}
	defer stop()
	if err := p.showCurrent(); err != nil {
		return fmt.Errorf("flush partition %d: %w", p.id, err)
	}
	s := p.acquire()
	defer s.release()
	if len(s.sealed) == 0 {
		return nil
	}
	begin := time.Now()
	result, err := p.flush(ctx, s)
	err = p.whyEnded(err)
	if p.events != nil && p.events.Flush != nil {
		p.events.Flush(event.Flush{
			Partition: p.id, Entries: result.Tables.Entries(), Bytes: result.Written(), Tables: len(result.Tables),
			Took: time.Since(begin), Err: err,
		})
	}
	if err != nil {
		return fmt.Errorf("flush partition %d: %w", p.id, err)
	}
	p.stats.flushes.Add(1)
	p.stats.flushedBytes.Add(result.Written())
	p.opts.Scheduler.Ready(p)
	return nil
}

func (p *Partition) flush(ctx context.Context, s *readState) (result compaction.Result, err error) {
	newest := s.sealed[0]
	if err := p.log.WaitSynced(ctx, newest.pos); err != nil {
		return result, err
	}
	if err := p.sequencer.WaitVisible(ctx, newest.table.MaxSeq()); err != nil {
		return result, err
	}
	result, err = p.run(ctx, flushJob(s.sealed))
	if err != nil {
		return result, err
	}
	edit := manifest.Edit{Kind: manifest.Flush, Added: result.Tables, Values: result.Values, FlushedSeq: newest.table.MaxSeq()}
	if p.opts.Position != nil {
		edit.Position = p.opts.Position(edit.FlushedSeq)
	}
	return result, p.install(edit)
}

// SavePosition saves the position that belongs to a number, up to which everything has been
// inserted, unless a memtable has something unflushed up to there. A partition to which few
// writes go would otherwise keep a replicated log for ever. FlushedSeq stays as it is: above
// what the partition has published, every proposal would find its reads stale.
//
// Errors: those of Flush.
func (p *Partition) SavePosition(ctx context.Context, upTo kv.SeqNum) error {
	p.flushing.Lock()
	defer p.flushing.Unlock()
	_, stop, err := p.whileOpen(ctx)
	if err != nil {
		return fmt.Errorf("save the position of partition %d: %w", p.id, err)
	}
	defer stop()
	if low, ok := p.UnflushedFrom(); ok && low <= upTo {
		return nil
	}
	position := p.opts.Position(upTo)
	if position == nil {
		return nil
	}
	if err := p.install(manifest.Edit{Kind: manifest.Flush, FlushedSeq: p.FlushedSeq(), Position: position}); err != nil {
		return fmt.Errorf("save the position of partition %d: %w", p.id, err)
	}
	return nil
}

// SavedPosition returns the last position that was saved with the tables, nil if there is none.
func (p *Partition) SavedPosition() []byte {
	s := p.acquire()
	defer s.release()
	return s.levels.version.Position
}

// flushJob is the merge of sealed memtables, newest first. Each passes for a run
// of one table, named by its place.
func flushJob(sealed []sealedTable) compaction.Job {
	choice := compaction.Choice{Kind: manifest.Flush, Reason: "memtables"}
	for i := range sealed {
		t := sealed[i].table
		choice.Deltas = append(choice.Deltas, manifest.Run{{Num: kv.FileNum(i), Entries: uint64(t.Len())}})
	}
	return compaction.Job{
		Choice: choice,
		Open: func(t *kv.TableMeta) (kv.Iterator, error) {
			return sealed[t.Num].table.NewIterator(), nil
		},
	}
}

// FlushReplayed writes what Replay has put into the memtable to a table. Before Start only,
// which then gets the same log: recovery has synced all that it replays.
//
// On error the memtable stays, and Flush can be called once the partition was started.
func (p *Partition) FlushReplayed(ctx context.Context, log Log) error {
	if p.active.Len() == 0 {
		return nil
	}
	p.log = log
	p.seal.take() // the budget may have called Seal
	p.sealActive()
	return p.Flush(ctx)
}

// FlushAll returns after everything acknowledged before the call is in tables.
func (p *Partition) FlushAll(ctx context.Context) error {
	target := p.Published()
	for {
		low, ok := p.UnflushedFrom()
		if !ok || low > target {
			return nil
		}
		if !p.FlushPending() {
			done := make(chan struct{})
			p.askSeal(done)
			select {
			case <-done:
			case <-p.writer.Stopped():
				return p.closedError()
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := p.Flush(ctx); err != nil {
			return err
		}
	}
}
