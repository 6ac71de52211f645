package wal

import (
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Defaults and bounds of Options.
const (
	DefaultSegmentBytes = 64 << 20
	DefaultIdleMark     = time.Second
	maxSegmentBytes     = 1 << 30
)

// Options configure a log.
type Options struct {
	FS      vfs.FS
	Dir     string // holds the segments; Open creates it for a fresh log
	StoreID uint64 // every checksum covers it

	// SegmentBytes is the length at which a segment ends; 0 means
	// DefaultSegmentBytes. A record longer than that gets a segment of its own.
	SegmentBytes int64
	Events       *event.Listener
	// NoSpace is called with the reason when a reservation of space fails: usually while
	// there is still some room. Append refuses what does not fit until Reserve succeeds. It
	// is called with no lock held, perhaps on Append's goroutine, and must not block.
	// Default: no call.
	NoSpace func(error)

	// Refusal makes the error of a record that is refused for lack of space, which must
	// wrap kv.ErrReadOnly and cause. It is called with locks held and must not call the
	// log. Default: an error without figures.
	Refusal func(cause error) error

	// MinSeq is the highest number known outside of the log, which was synced up to it. New
	// numbers are greater. A log that ends before it has lost its end, unless Fresh is set.
	MinSeq kv.SeqNum
	// Fresh says that the store is being created, so that there may be no log yet.
	// Otherwise a missing log is damage.
	Fresh bool
	// Archive says that segments are copied before they are deleted: Reclaim deletes none
	// that Archived has not named.
	Archive bool

	// idleMark is how long the log must be idle before it syncs what it has and notes that;
	// 0 means DefaultIdleMark. Only tests of this package set it.
	idleMark time.Duration
}

func (o *Options) setDefaults() error {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.idleMark == 0 {
		o.idleMark = DefaultIdleMark
	}
	if o.Events == nil {
		o.Events = &event.Listener{}
	}
	if o.SegmentBytes < 0 || o.SegmentBytes > maxSegmentBytes {
		return fmt.Errorf("%w: commit log: SegmentBytes is %d, must be 1 to %d", kv.ErrInvalidArgument, o.SegmentBytes, maxSegmentBytes)
	}
	return nil
}
