package embed

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// openOn opens a store on a file system.
func openOn(t *testing.T, fsys vfs.FS) *Store {
	t.Helper()
	db, err := open("data", nil, options{memory: memoryBytes, partitions: 2}, engine.Options{FS: fsys, SegmentBytes: memorySegment})
	require.NoError(t, err)
	return db
}

// A call that gives up while its record is on the way to the disk has let go of what it was
// given: the record may still become durable, as it was.
func TestAWriteInDoubtKeepsNoArgument(t *testing.T) {
	mem := vfs.NewMem()
	disk := faultfs.Wrap(mem, nil)
	db := openOn(t, disk)
	stuck, free := make(chan struct{}), make(chan struct{})
	disk.SetInjector(faultfs.At(0, false, faultfs.Fault{Delay: func() { close(stuck); <-free }},
		faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.wal")))
	leader := make(chan error, 1)
	go func() { leader <- db.Put(context.Background(), []byte("first"), nil) }()
	<-stuck

	writes := map[string]func(ctx context.Context, key, value []byte) error{
		"put": func(ctx context.Context, key, value []byte) error { return db.Put(ctx, key, value) },
		"if":  func(ctx context.Context, key, value []byte) error { return db.Put(ctx, key, value, kvd.IfAbsent()) },
		"batch": func(ctx context.Context, key, value []byte) error {
			// Its memory serves again if it is not in doubt.
			_, err := db.Apply(ctx, new(kvd.Batch).Put(key, value).Put(append(key, "/2"...), value))
			return err
		},
	}
	for name, write := range writes {
		testwait.Until(t, func() bool { // it may be cancelled before its record is in the log
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			key, value := []byte(name), []byte("value")
			ended := make(chan error, 1)
			go func() { ended <- write(ctx, key, value) }()
			time.Sleep(time.Millisecond)
			cancel()
			err := <-ended
			clear(key)
			clear(value)
			require.ErrorIs(t, err, context.Canceled, name)
			return errors.Is(err, kvd.ErrUncertain)
		})
	}
	close(free)
	require.NoError(t, <-leader)
	require.NoError(t, db.Close())
	db = openOn(t, mem)
	for item, err := range db.Scan(t.Context(), kvd.All()) {
		require.NoError(t, err)
		if string(item.Key) == "first" {
			continue
		}
		name, _, _ := strings.Cut(string(item.Key), "/")
		assert.Contains(t, writes, name)
		assert.Equal(t, "value", string(item.Value))
	}
	require.NoError(t, db.Close())
}

func TestAFailedDiskIsToldAndFinal(t *testing.T) {
	disk := faultfs.Wrap(vfs.NewMem(), nil)
	db := openOn(t, disk)
	require.NoError(t, db.Put(t.Context(), []byte("k"), []byte("v")))
	select {
	case <-db.Failed():
		t.Fatal("it has not")
	default:
	}
	broken := errors.New("the disk is broken")
	disk.SetInjector(faultfs.FailAt(0, broken, false, faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.wal")))
	err := db.Put(t.Context(), []byte("k"), nil)
	require.ErrorIs(t, err, kvd.ErrUncertain)
	<-db.Failed()
	for name, call := range map[string]func() error{
		"put":  func() error { return db.Put(t.Context(), []byte("k"), nil) },
		"ping": func() error { return db.Ping(t.Context()) },
		"apply": func() error {
			_, err := db.Apply(t.Context(), new(kvd.Batch).Delete([]byte("k")))
			return err
		},
	} {
		err := call()
		require.ErrorIs(t, err, kvd.ErrUnavailable, name)
		require.ErrorContains(t, err, "the disk is broken", name)
	}
	require.ErrorContains(t, db.Close(), "the disk is broken")
}

func TestDamageIsNamed(t *testing.T) {
	err := failure(kv.Corruptf("p-0000/000012.sst", 4096, "a checksum is wrong"))
	require.ErrorIs(t, err, kvd.ErrCorrupt)
	require.ErrorContains(t, err, "p-0000/000012.sst at offset 4096")
	err = openFailed("data", &fs.PathError{Op: "open", Path: "data", Err: fs.ErrPermission})
	require.ErrorIs(t, err, kvd.ErrUnavailable)
	require.ErrorIs(t, err, fs.ErrPermission)
}

// counted counts the value files that are open.
type counted struct {
	vfs.FS
	open atomic.Int64
}

func (c *counted) Open(name string) (vfs.File, error) {
	f, err := c.FS.Open(name)
	if err == nil && strings.HasSuffix(name, ".val") {
		c.open.Add(1)
		f = &countedFile{File: f, closed: sync.OnceFunc(func() { c.open.Add(-1) })}
	}
	return f, err
}

type countedFile struct {
	vfs.File
	closed func()
}

func (f *countedFile) Close() error {
	f.closed()
	return f.File.Close()
}

// A backup that is closed in the middle of a file leaves none open, and what reading a file returns is
// an error of a call.
func TestABackupThatEndsInTheMiddleOfAFile(t *testing.T) {
	disk := faultfs.Wrap(vfs.NewMem(), nil)
	files := &counted{FS: disk}
	db := openOn(t, files)
	require.NoError(t, db.Put(t.Context(), []byte("k"), make([]byte, 100_000)))
	require.NoError(t, db.engine.Flush(t.Context()))
	b, err := db.Backup(t.Context(), 0)
	require.NoError(t, err)
	before := files.open.Load()
	var content io.Reader
	for range 2 {
		for _, f := range b.Info().Files {
			if strings.HasSuffix(f.Name, ".val") {
				_, content, err = b.Fetch(f.Name)
				require.NoError(t, err)
				require.Equal(t, before+1, files.open.Load())
			}
		}
	}
	disk.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Read), faultfs.OnName("*.val")))
	_, err = io.Copy(io.Discard, content)
	e, ok := errors.AsType[*kvd.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "backup", e.Op)
	disk.SetInjector(nil)
	require.NoError(t, b.Close())
	require.Equal(t, before, files.open.Load())
	_, _, err = b.Fetch("STORE")
	require.ErrorIs(t, err, kvd.ErrClosed)
	require.NoError(t, db.Close())
}
