package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Backup implements backend.Backend. The timeout of the client bounds the wait for the
// header; the server verifies a file before it sends it, which takes as long as the file and the
// rate say.
func (c *Network) Backup(ctx context.Context, rate int64) (backend.Backup, error) {
	tries := c.attempts(ctx)
	for {
		b, f := c.openBackup(ctx, uint64(max(rate, 0)), &tries)
		if f == nil {
			return b, nil
		}
		if err := tries.again(ctx, f); err != nil {
			return nil, err
		}
	}
}

func (c *Network) openBackup(caller context.Context, rate uint64, tries *attempts) (*backupStream, *fault) {
	b := &backupStream{adminStream: c.beginStream(caller, tries)}
	defer b.bound(c.options.Timeout)()
	stream, err := b.service().Backup(b.ctx)
	if err == nil {
		b.stream = stream
		err = stream.Send(&kvdpb.BackupRequest{BytesPerSecond: rate})
		if errors.Is(err, io.EOF) {
			err = nil // Recv has the reason
		}
	}
	var header *kvdpb.BackupHeader
	if err == nil {
		var r *kvdpb.BackupResponse
		if r, err = stream.Recv(); err == nil {
			header = r.GetHeader()
		}
	}
	switch {
	case err != nil:
		f := b.fault(err)
		_ = b.Close() // it returns nil
		return nil, f
	case header == nil:
		_ = b.Close()
		return nil, &fault{err: backend.ErrInternal, message: "the server's backup has no header"}
	}
	b.info = backend.BackupInfo{StoreID: header.StoreId, Version: header.Version}
	for _, f := range header.Files {
		b.info.Files = append(b.info.Files, backend.BackupFile{Name: f.Name, Size: int64(min(f.Bytes, math.MaxInt64))})
	}
	return b, nil
}

// backupStream is a backup that a server sends.
type backupStream struct {
	adminStream
	stream kvdpb.AdminService_BackupClient
	info   backend.BackupInfo
	closed bool
}

// Info implements backend.Backup.
func (b *backupStream) Info() backend.BackupInfo { return b.info }

// Fetch implements backend.Backup.
func (b *backupStream) Fetch(name string, known []uint64) (uint64, io.Reader, error) {
	size := int64(-1)
	for _, f := range b.info.Files {
		if f.Name == name {
			size = f.Size
		}
	}
	if err := b.stream.Send(&kvdpb.BackupRequest{File: name, KnownChecksums: known}); err != nil && !errors.Is(err, io.EOF) {
		return 0, nil, b.fault(err).error(false, 1)
	}
	r, err := b.stream.Recv()
	if err != nil {
		return 0, nil, b.fault(err).error(false, 1)
	}
	begin := r.GetBegin()
	switch {
	case begin == nil:
		return 0, nil, b.unexpected(name)
	case begin.Known:
		return begin.Checksum, nil, nil
	}
	return begin.Checksum, &backupContent{b: b, name: name, left: size}, nil
}

func (b *backupStream) unexpected(name string) error {
	f := fault{err: backend.ErrInternal, message: fmt.Sprintf("the server sent something other than the file %s", name)}
	return f.error(false, 1)
}

// Close implements backend.Backup.
func (b *backupStream) Close() error {
	if !b.closed {
		b.closed = true
		b.adminStream.close()
	}
	return nil
}

// backupContent reads the data of one file.
type backupContent struct {
	b    *backupStream
	name string
	left int64
	data []byte
}

// Read implements io.Reader.
func (c *backupContent) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		if c.left == 0 {
			return 0, io.EOF
		}
		r, err := c.b.stream.Recv()
		if err != nil {
			return 0, c.b.fault(err).error(false, 1)
		}
		c.data = r.GetData()
		if len(c.data) == 0 || int64(len(c.data)) > c.left {
			return 0, c.b.unexpected(c.name)
		}
		c.left -= int64(len(c.data))
	}
	n := copy(p, c.data)
	c.data = c.data[n:]
	return n, nil
}
