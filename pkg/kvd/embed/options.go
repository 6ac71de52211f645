package embed

import (
	"fmt"
	"log/slog"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// Option is a choice made in Open or Memory.
type Option func(*options)

type options struct {
	memory     int64
	partitions int
	durability kvd.Durability
	logger     *slog.Logger
	readOnly   bool
	existing   bool
	hook       func(kvd.CallInfo)
}

// WithMemory bounds what the store keeps in memory of data: one half for writes that are
// not in tables yet, from three quarters of which on writers are slowed, and one half for
// the cache of blocks. The default is 256 MiB for Open and 16 MiB for Memory, whose files
// are in memory too and do not count. At least 1 MiB. Requests, filters and indexes come
// on top; set GOMEMLIMIT to bound the process.
func WithMemory(bytes int64) Option { return func(o *options) { o.memory = bytes } }

// WithPartitions sets the number of partitions of a store that is created: by default two
// for each processor that Go uses, rounded up to a power of two, from 4 to 64; 4 for
// Memory. For a store that exists, Open takes what is there by default, and any other
// number is ErrInvalid.
func WithPartitions(n int) Option { return func(o *options) { o.partitions = n } }

// WithDurability sets the durability of writes that do not choose their own with
// kvd.Durable. The default is kvd.Sync.
func WithDurability(d kvd.Durability) Option { return func(o *options) { o.durability = d } }

// WithLogger tells l what happens to the store: opening, damage, failures, a disk that is
// full. Without it the store is silent.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// WithHook calls hook when a call ends, for metrics and traces, as kvd.WithHook does with the
// calls of a client: the same calls are reported, with the same names. Attempts is 1 where it
// is known, and of Timings the stages of the store are filled in. Without a hook there is no
// cost.
func WithHook(hook func(kvd.CallInfo)) Option { return func(o *options) { o.hook = hook } }

// WithReadOnly opens a store without changing a file, and so that other processes may have
// it open likewise. Writes are ErrReadOnly. The store must exist.
func WithReadOnly() Option { return func(o *options) { o.readOnly = true } }

// WithExisting makes it an error if there is no store. Without it Open creates one.
func WithExisting() Option { return func(o *options) { o.existing = true } }

const minMemory = 1 << 20

func (o *options) check() error {
	switch {
	case o.memory < minMemory:
		return fmt.Errorf("%w: memory of %d bytes, want at least %d", kvd.ErrInvalid, o.memory, minMemory)
	case o.partitions < 0 || o.partitions > descriptor.MaxPartitions:
		return fmt.Errorf("%w: %d partitions, want 1 to %d", kvd.ErrInvalid, o.partitions, descriptor.MaxPartitions)
	case o.durability > kvd.Sync:
		return fmt.Errorf("%w: durability %d is unknown", kvd.ErrInvalid, o.durability)
	case o.logger == nil:
		return fmt.Errorf("%w: the logger is nil", kvd.ErrInvalid)
	}
	return nil
}
