package kvd

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// serveEngine serves an engine in memory, and returns a client of it.
func serveEngine(t *testing.T, o service.Options) (*engine.Engine, *servertest.Service, *Client) {
	t.Helper()
	e, err := engine.Open("data", engine.Options{FS: vfs.NewMem(), Partitions: 3, MemtableBytes: 1 << 20, LowDiskBytes: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	s := servertest.ServeStore(t, daemon.Store(e), o)
	db, err := Open("bufconn", WithDialer(s.Dial), WithTimeout(testwait.Left()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return e, s, db
}

// The client gets every file, with the checksum that the engine has verified.
func TestBackupSendsTheFilesOfACheckpoint(t *testing.T) {
	e, _, db := serveEngine(t, service.Options{})
	require.NoError(t, db.Put(t.Context(), []byte("k"), make([]byte, 300_000)))
	require.NoError(t, e.Flush(t.Context()))
	b, err := db.Backup(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, 1, e.Stats().Checkpoints)
	info := b.Info()
	require.Equal(t, e.Descriptor().StoreID, info.StoreID)
	require.EqualValues(t, 1, info.Version)
	most := 0
	for _, f := range info.Files {
		sum, content, err := b.Fetch(f.Name, 1)
		require.NoError(t, err)
		got, err := io.ReadAll(content)
		require.NoError(t, err)
		require.Len(t, got, int(f.Size))
		h := backup.NewSum()
		h.Write(got)
		require.Equal(t, h.Sum64(), sum, f.Name)
		most = max(most, len(got))
		again, content, err := b.Fetch(f.Name, 1, sum)
		require.NoError(t, err)
		require.Nil(t, content, "its checksum is known")
		require.Equal(t, sum, again)
	}
	require.Greater(t, most, 300_000, "a file of several messages")
	_, _, err = b.Fetch("p-0000/../../secret")
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	testwait.Until(t, func() bool { return e.Stats().Checkpoints == 0 }, "the end of the checkpoint")
}

// What a backup returns are errors of a call, also while a file is read.
func TestErrorsOfABackup(t *testing.T) {
	e, _, db := serveEngine(t, service.Options{})
	require.NoError(t, db.Put(t.Context(), []byte("k"), make([]byte, 3<<20)))
	require.NoError(t, e.Flush(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b, err := db.Backup(ctx, 0)
	require.NoError(t, err)
	files := b.Info().Files
	largest := slices.MaxFunc(files, func(a, b BackupFile) int { return cmp.Compare(a.Size, b.Size) })
	require.Greater(t, largest.Size, int64(2<<20), "more than may be on the way before it is read")
	_, content, err := b.Fetch(largest.Name)
	require.NoError(t, err)
	_, err = content.Read(make([]byte, 1))
	require.NoError(t, err)
	cancel()
	_, err = io.Copy(io.Discard, content)
	require.Equal(t, "backup", requireError(t, err).Op)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, b.Close())
	_, _, err = b.Fetch(largest.Name)
	require.ErrorIs(t, err, ErrClosed)

	b, err = db.Backup(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, _, err = b.Fetch(largest.Name)
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, b.Close())
}

// The server keeps files only for clients that take them.
func TestABackupOfAnIdleClientEnds(t *testing.T) {
	e, _, db := serveEngine(t, service.Options{Deadline: 2 * time.Second})
	b, err := db.Backup(t.Context(), 0)
	require.NoError(t, err)
	testwait.Until(t, func() bool { return e.Stats().Checkpoints == 0 }, "the end of the checkpoint")
	_, _, err = b.Fetch("STORE")
	require.Error(t, err)
	require.NoError(t, b.Close())

	ctx, cancel := context.WithCancel(t.Context())
	b, err = db.Backup(ctx, 0)
	require.NoError(t, err)
	cancel()
	_, _, err = b.Fetch("STORE")
	require.ErrorIs(t, err, context.Canceled)
	testwait.Until(t, func() bool { return e.Stats().Checkpoints == 0 }, "the end of the checkpoint")
	require.NoError(t, b.Close())
}

func TestTooManyBackupsAreRefused(t *testing.T) {
	_, _, db := serveEngine(t, service.Options{})
	var err error
	for err == nil {
		var b *Backup
		if b, err = db.Backup(t.Context(), 0); err == nil {
			defer func() { require.NoError(t, b.Close()) }()
		}
	}
	require.ErrorIs(t, err, ErrOverloaded)
}

func TestAStoreThatCannotBeBackedUpSaysSo(t *testing.T) {
	_, err := serve(t, nil, service.Options{}).open(t).Backup(t.Context(), 0)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "cannot be backed up")
}

// Requests that a client of ours does not send.
func TestWrongRequestsOfABackup(t *testing.T) {
	e, s, _ := serveEngine(t, service.Options{})
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) { return s.Dial(ctx, a) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	for _, files := range [][]string{{"STORE"}, {"", ""}, {"", "LOCK"}, {"", "../x"}} {
		stream, err := kvdpb.NewAdminServiceClient(conn).Backup(t.Context())
		require.NoError(t, err)
		for _, file := range files {
			require.NoError(t, stream.Send(&kvdpb.BackupRequest{File: file}))
		}
		for err == nil {
			_, err = stream.Recv()
		}
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v: %v", files, err)
	}
	stream, err := kvdpb.NewAdminServiceClient(conn).Backup(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&kvdpb.BackupRequest{}))
	require.NoError(t, stream.CloseSend())
	for err == nil {
		_, err = stream.Recv()
	}
	require.True(t, errors.Is(err, io.EOF), "%v", err)
	testwait.Until(t, func() bool { return e.Stats().Checkpoints == 0 }, "the end of the checkpoints")
}
