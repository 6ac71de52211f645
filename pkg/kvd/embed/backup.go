package embed

import (
	"cmp"
	"context"
	"io"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Backup implements backend.Backend.
func (l *local) Backup(ctx context.Context, rate int64) (backend.Backup, error) {
	c, err := l.engine.Checkpoint(ctx, cmp.Or(max(rate, 0), pace.BackupRate))
	if err != nil {
		return nil, failure(err)
	}
	return &checkpoint{Checkpoint: c, ctx: ctx}, nil
}

// checkpoint is the engine's as a backend.Backup.
type checkpoint struct {
	*engine.Checkpoint
	ctx     context.Context // of the call that began it
	content io.Reader       // of the last Fetch
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
	c.closeContent()
	sum, content, err := c.Checkpoint.Fetch(c.ctx, name, known)
	if err != nil {
		return 0, nil, failure(err)
	}
	if content == nil {
		return sum, nil, nil
	}
	c.content = content
	return sum, translated{content}, nil
}

// closeContent closes the file of the last Fetch, of which the caller may not have read everything.
func (c *checkpoint) closeContent() {
	if file, ok := c.content.(io.Closer); ok {
		_ = file.Close() // it was only read, or was closed at its end
	}
	c.content = nil
}

// Close implements backend.Backup.
func (c *checkpoint) Close() error {
	c.closeContent()
	c.Release()
	return nil
}

// translated is the content of a file, with the errors of a backend.
type translated struct{ content io.Reader }

// Read implements io.Reader.
func (t translated) Read(p []byte) (n int, err error) {
	if n, err = t.content.Read(p); err != nil && err != io.EOF {
		err = failure(err)
	}
	return n, err
}
