package embed

import (
	"context"
	"io"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Backup implements backend.Backend.
func (l *local) Backup(ctx context.Context) (backend.Backup, error) {
	c, err := l.engine.Checkpoint(ctx)
	if err != nil {
		return nil, failure(err)
	}
	return &checkpoint{c, ctx}, nil
}

// checkpoint is the engine's as a backend.Backup.
type checkpoint struct {
	*engine.Checkpoint
	ctx context.Context // of the call that began it
}

// Info implements backend.Backup.
func (c *checkpoint) Info() backend.BackupInfo {
	i := c.Checkpoint.Info()
	info := backend.BackupInfo{StoreID: i.StoreID, Version: uint64(i.Version)}
	for _, f := range i.Files {
		info.Files = append(info.Files, backend.BackupFile(f))
	}
	return info
}

// Fetch implements backend.Backup.
func (c *checkpoint) Fetch(name string, known []uint64) (uint64, io.Reader, error) {
	sum, content, err := c.Checkpoint.Fetch(c.ctx, name, known)
	if err != nil {
		return 0, nil, failure(err)
	}
	return sum, content, nil
}

// Close implements backend.Backup.
func (c *checkpoint) Close() error {
	c.Release()
	return nil
}
