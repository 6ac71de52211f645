package kvd

import (
	"context"
	"io"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Backup is one version of a whole store, as files that do not change until Close. A
// directory with these files is a store. The command kvd backup keeps backups; this is for
// programs that keep them elsewhere. It is used by one goroutine.
type Backup struct {
	client *Client
	b      backend.Backup
	closed bool
}

// BackupInfo describes a version of a store.
type BackupInfo struct {
	StoreID uint64 // of the store
	Version uint64 // every write up to this version is in it, and no other
	Files   []BackupFile
}

// BackupFile is one file of a backup.
type BackupFile struct {
	Name string // in the data directory, with slashes
	Size int64
}

// Backup begins a backup, which holds every write that was acknowledged before the call. The
// caller closes it; Close of the client ends it too. Until then, and as long as ctx lasts, the server keeps the files of the
// version, which take space; it ends a backup of which it hears nothing for its deadline
// (30 s).
//
// The store reads at most rate bytes of its files per second; 0 means 16 MiB. It reads two bytes
// for each one that it sends, of its log three: it verifies a file before it sends it. A server older
// than this bound reads to verify as fast as it can.
func (c *Client) Backup(ctx context.Context, rate int64) (*Backup, error) {
	const name = "backup"
	in, err := c.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.leave()
	b, err := c.backend.Backup(ctx, rate)
	if err != nil {
		return nil, failed(name, err)
	}
	return &Backup{client: c, b: b}, nil
}

// Info describes the version and lists its files.
func (b *Backup) Info() BackupInfo {
	i := b.b.Info()
	info := BackupInfo{StoreID: i.StoreID, Version: i.Version}
	for _, f := range i.Files {
		info.Files = append(info.Files, BackupFile(f))
	}
	return info
}

// Fetch returns the checksum of a file (xxHash64) and its content, which the server has
// verified. The content is nil if the checksum is among known. It must be read to its end
// before the next call; a caller that does not need the rest closes the Backup. Errors of the content
// are those of a call.
func (b *Backup) Fetch(name string, known ...uint64) (sum uint64, content io.Reader, err error) {
	if b.over() {
		return 0, nil, b.failed(nil)
	}
	sum, content, err = b.b.Fetch(name, known)
	if err != nil {
		return 0, nil, b.failed(err)
	}
	if content == nil {
		return sum, nil, nil
	}
	return sum, &backupContent{b, content}, nil
}

// over reports whether the backup or the client was closed.
func (b *Backup) over() bool { return b.closed || b.client.open.Err() != nil }

// failed makes an error of the backend the error of a call. After Close that is ErrClosed.
func (b *Backup) failed(err error) error {
	const name = "backup"
	if b.over() {
		return &Error{Op: name, Err: ErrClosed, Message: "the backup or the client was closed"}
	}
	return failed(name, err)
}

// backupContent is the content of a file of a backup.
type backupContent struct {
	backup  *Backup
	content io.Reader
}

// Read implements io.Reader.
func (c *backupContent) Read(p []byte) (n int, err error) {
	if n, err = c.content.Read(p); err != nil && err != io.EOF {
		err = c.backup.failed(err)
	}
	return n, err
}

// Close ends the backup. Idempotent.
func (b *Backup) Close() error {
	b.closed = true
	return b.b.Close()
}
