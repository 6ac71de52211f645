package service

import (
	"cmp"
	"context"

	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/internal/reason"
)

// CheckpointEnded is the error of a backup that the store has ended.
var CheckpointEnded = &Error{
	Code: OutOfRange, Reason: reason.VersionGone,
	Message: "the server ended the backup, because its disk is nearly full; free space, then repeat it",
}

// Checkpoint returns a version of the whole store as files, of which at most rate bytes are read per
// second; 0 means pace.BackupRate. The caller releases it.
func (s *Server) Checkpoint(ctx context.Context, rate int64) (Checkpoint, error) {
	store, ok := s.store.Store.(Checkpointer)
	if !ok {
		return nil, Invalidf("this store cannot be backed up")
	}
	return store.Checkpoint(ctx, cmp.Or(rate, pace.BackupRate))
}
