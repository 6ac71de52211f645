package partitiontest

import (
	"context"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// Lookup answers reads at the newest visible version of a partition, in a micro-batch. It
// fails only if ctx ends before the reads are part of one.
func Lookup(ctx context.Context, p *partition.Partition, reads ...*kv.Lookup) error {
	l := partition.BeginLookup([]partition.ReadShare{{Partition: p, Reads: reads}})
	defer l.End()
	return l.Rest(ctx, 0, nil)
}
