package partition

import (
	"context"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/compaction"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// Log is what a partition needs of the log that its records come from.
type Log interface {
	// WaitSynced returns once the disk has the log up to pos.
	WaitSynced(ctx context.Context, pos wal.Pos) error
	// Err returns what stopped the log for good, nil while it works.
	Err() error
}

// Writer is what applies records to a partition: it calls Insert, Publish and
// SealIfDue.
type Writer interface {
	// Wake has it call SealIfDue soon.
	Wake()
	// Stopped is closed when it applies nothing any more.
	Stopped() <-chan struct{}
}

// Sequencer keeps the number up to which every write of the node is visible.
type Sequencer interface {
	// WaitVisible returns once all numbers up to seq are.
	WaitVisible(ctx context.Context, seq kv.SeqNum) error
	// Horizon returns, ascending, the numbers at which a reader may be reading, now
	// or later: the live snapshots and the number that the next one would get; and a
	// time of the store's clock that none of them reads before. It is called after
	// WaitVisible for all that is being merged.
	Horizon() (snapshots []kv.SeqNum, now uint64)
}

// Budget counts the bytes in memtables over all partitions and asks the right
// one to seal when there are too many (Partition.Seal).
type Budget interface {
	// Grew says by how much the active memtable of p grew.
	Grew(p *Partition, bytes int64)
	// Sealed says that so many bytes went from active to sealed.
	Sealed(p *Partition, bytes int64)
	// Flushed says that so many sealed bytes are gone.
	Flushed(p *Partition, bytes int64)
}

// Scheduler runs background work. Partition.Flush and Partition.Compact are
// called for a partition by one goroutine each at a time.
type Scheduler interface {
	// Ready says that p may have something to flush or to compact.
	Ready(p *Partition)
}

// Options of a partition. What is not marked optional is required.
type Options struct {
	ID int
	FS vfs.FS
	// ReadOnly: nothing is written. StartReading takes the place of Start.
	ReadOnly bool
	// AllowDamaged: tables that are damaged, cut or missing are opened all the same, and reads of
	// their keys fail.
	AllowDamaged bool
	Dir          string

	Sequencer Sequencer
	Budget    Budget
	Scheduler Scheduler
	Cache     *sstable.Cache
	Events    *event.Listener // optional

	Reads batcher.Policy // how read micro-batches form

	// Now is the store's clock, in Unix milliseconds. It never goes back.
	Now func() uint64

	// Position returns where in a replicated log the tables stand once they hold everything up
	// to a number: see manifest.Version. It is saved with the flush; nil: the saved one stays.
	// Optional.
	Position func(flushed kv.SeqNum) []byte

	// FlushBytes and FlushKeys seal the active memtable at this size, whatever
	// the budget says. Zero FlushKeys: no bound on keys.
	FlushBytes int64
	FlushKeys  int

	// TableBytes is where tables are cut; zero is compaction's default.
	TableBytes int64
	Table      sstable.WriterOptions

	// ValueThreshold: values of at least so many bytes go into value files; zero: none
	// does. It may change from one opening to the next.
	ValueThreshold int

	Compaction compaction.Policy
	// AtRest reports whether the store has little else to do, so that merges go by
	// Compaction.AtRest; optional.
	AtRest func() bool
}
