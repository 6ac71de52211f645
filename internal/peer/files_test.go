package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// files is a Checkpoint in memory.
type files struct {
	names    []string
	contents map[string][]byte
	sent     atomic.Int64
	released atomic.Int64
	cutAt    string // onCut is called in the middle of this file
	onCut    func()
	fail     string // this file cannot be read
}

func checkpoint() *files {
	f := &files{contents: map[string][]byte{}}
	for _, name := range []string{"STORE", "CLOCK", "p-0000/CURRENT", "p-0000/000002.sst", "p-0000/000003.val"} {
		f.names = append(f.names, name)
		f.contents[name] = bytes.Repeat([]byte(name), 10)
	}
	f.contents["p-0000/000002.sst"] = bytes.Repeat([]byte("table"), fileChunk)
	f.contents["p-0000/CURRENT"] = nil
	return f
}

func (f *files) Release() { f.released.Add(1) }

func (f *files) Info() backup.Info {
	info := backup.Info{StoreID: 7, Version: 9}
	for _, name := range f.names {
		info.Files = append(info.Files, backup.File{Name: name, Size: int64(len(f.contents[name]))})
	}
	return info
}

func (f *files) Fetch(_ context.Context, name string, known []uint64) (uint64, io.Reader, error) {
	if name == f.fail {
		return 0, nil, errors.New("the disk failed")
	}
	content := f.contents[name]
	sum := xxhash.Sum64(content)
	if slices.Contains(known, sum) {
		return sum, nil, nil
	}
	f.sent.Add(int64(len(content)))
	if name == f.cutAt {
		return sum, io.MultiReader(bytes.NewReader(content[:len(content)/2]), cut(f.onCut), bytes.NewReader(content[len(content)/2:])), nil
	}
	return sum, io.NopCloser(bytes.NewReader(content)), nil
}

// cut is a reader that has nothing, and calls a function.
type cut func()

func (c cut) Read([]byte) (int, error) {
	c()
	return 0, io.EOF
}

func open(f *files) func(context.Context, uint64, []byte) (Checkpoint, error) {
	return func(_ context.Context, _ uint64, token []byte) (Checkpoint, error) {
		if string(token) != "token" {
			return nil, errors.New("it is gone")
		}
		return f, nil
	}
}

func receive(t *testing.T, n *Network, fsys vfs.FS) (*backup.Result, error) {
	remote, err := n.Files(testwait.Context(t), 2, []byte("token"))
	if err != nil {
		return nil, err
	}
	defer func() { require.NoError(t, remote.Close()) }()
	return backup.Receive(t.Context(), remote, fsys, "data", time.Unix(1_790_000_000, 0), backup.Options{})
}

// A member fetches the files of a checkpoint. A transfer that is cut is continued, and sends
// again only what is not complete.
func TestFiles(t *testing.T) {
	n1, n2, _, _, p := pair(t, nil)
	f := checkpoint()
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data"))
	_, err := n1.Files(t.Context(), 2, []byte("token"))
	require.ErrorContains(t, err, "has no checkpoints")
	n2.ServeFiles(open(f))

	f.cutAt, f.onCut = "p-0000/000003.val", func() { p.setCut(true) }
	_, err = receive(t, n1, fsys)
	require.Error(t, err)
	_, err = backup.Incoming(fsys, "data")
	require.Error(t, err)
	p.setCut(false)
	f.cutAt = "" // after the lock of the proxy, which the sender took after it had read this
	before := f.sent.Load()
	var r *backup.Result
	testwait.Until(t, func() bool { // the end of the first transfer may be late
		r, err = receive(t, n1, fsys)
		return err == nil
	})
	require.Equal(t, 4, r.Reused)
	require.Equal(t, int64(len(f.contents["p-0000/000003.val"])), f.sent.Load()-before)
	m, err := backup.Incoming(fsys, "data")
	require.NoError(t, err)
	require.Equal(t, kv.SeqNum(9), m.Version)
	for name, content := range f.contents {
		file, err := fsys.Open("data/incoming/" + name)
		require.NoError(t, err)
		got := make([]byte, len(content)+1)
		size, err := file.ReadAt(got, 0)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, content, append([]byte(nil), got[:size]...), name)
		require.NoError(t, file.Close())
	}
	testwait.Until(t, func() bool { return f.released.Load() >= 2 })
	sent, cut := n2.Status()[0].SentFileBytes, uint64(len(f.contents["p-0000/000003.val"])) // of which the first transfer sent a part, or none
	all := uint64(0)
	for _, content := range f.contents {
		all += uint64(len(content))
	}
	require.GreaterOrEqual(t, sent, all)
	require.LessOrEqual(t, sent, all+cut)
}

func TestFilesThatAreRefused(t *testing.T) {
	n1, n2, _, _, _ := pair(t, nil)
	f := checkpoint()
	n2.ServeFiles(open(f))
	_, err := n1.Files(t.Context(), 9, []byte("token"))
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	// One after the other: the end of a transfer may be late.
	files := func(token string) (remote *RemoteFiles, err error) {
		testwait.Until(t, func() bool {
			remote, err = n1.Files(testwait.Context(t), 2, []byte(token))
			return err == nil || !bytes.Contains([]byte(err.Error()), []byte("to another node"))
		})
		return remote, err
	}
	_, err = files("")
	require.ErrorContains(t, err, "want 1 to 1024")
	_, err = files("old")
	require.ErrorContains(t, err, "it is gone")

	remote, err := files("token")
	require.NoError(t, err)
	_, err = n1.Files(t.Context(), 2, []byte("token"))
	require.ErrorContains(t, err, "to another node")
	_, content, err := remote.Fetch(t.Context(), "STORE", nil)
	require.NoError(t, err)
	_, _, err = remote.Fetch(t.Context(), "CLOCK", nil)
	require.ErrorContains(t, err, "was not read to its end")
	_, err = io.ReadAll(content)
	require.NoError(t, err)
	_, _, err = remote.Fetch(t.Context(), "../secret", nil)
	require.ErrorContains(t, err, "has no file")
	require.NoError(t, remote.Close())
	require.NoError(t, remote.Close())

	f.fail = "CLOCK"
	remote, err = files("token")
	require.NoError(t, err)
	_, _, err = remote.Fetch(t.Context(), "CLOCK", nil)
	require.ErrorContains(t, err, "the disk failed")
	require.NoError(t, remote.Close())

	// A node that is removed gets nothing more.
	remote, err = files("token")
	require.NoError(t, err)
	require.NoError(t, n2.SetMembers(nil))
	_, _, err = remote.Fetch(t.Context(), "STORE", nil)
	require.ErrorContains(t, err, "was removed")
	require.NoError(t, remote.Close())
	_, err = files("token")
	require.ErrorContains(t, err, "is no member")
}

// A node that takes nothing loses its checkpoint.
func TestFilesStall(t *testing.T) {
	n1, n2, _, _, _ := pair(t, nil)
	f := checkpoint()
	n2.ServeFiles(open(f))
	n2.stallWait = 10 * time.Millisecond
	remote, err := n1.Files(testwait.Context(t), 2, []byte("token"))
	if err == nil {
		testwait.Until(t, func() bool { return f.released.Load() == 1 })
		_, _, err = remote.Fetch(t.Context(), "STORE", nil)
		require.NoError(t, remote.Close())
	}
	require.ErrorContains(t, err, "took nothing for")
}

// script is a stream with requests. Each comes after a pause.
type script struct {
	grpc.BidiStreamingServer[peerpb.FilesRequest, peerpb.FilesResponse]
	requests []*peerpb.FilesRequest
	pause    time.Duration
	sent     int
}

func (s *script) Recv() (*peerpb.FilesRequest, error) {
	time.Sleep(s.pause)
	if len(s.requests) == 0 {
		return nil, io.EOF
	}
	r := s.requests[0]
	s.requests = s.requests[1:]
	return r, nil
}

func (s *script) Send(r *peerpb.FilesResponse) error {
	s.sent += len(r.GetData())
	return nil
}

// slow is a checkpoint whose files take an hour each to be verified, and another one to be read.
type slow struct{ *files }

func (s slow) Fetch(ctx context.Context, name string, known []uint64) (uint64, io.Reader, error) {
	time.Sleep(time.Hour)
	sum, r, err := s.files.Fetch(ctx, name, known)
	return sum, io.MultiReader(cut(func() { time.Sleep(time.Hour) }), r), err
}

// The time that this node takes to verify and to read files is not that for which it waits for the
// other one.
func TestFilesThatTakeLong(t *testing.T) {
	for pause, want := range map[time.Duration]error{stallWait - 1: nil, stallWait + 1: context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			n, to, f := &Network{stallWait: stallWait}, &member{id: 1}, checkpoint()
			n.members.Store(&map[uint64]*member{1: to})
			stream := &script{requests: []*peerpb.FilesRequest{{Token: []byte("token")}, {Name: "STORE"}, {Name: "CLOCK"}}, pause: pause}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &sender{network: n, to: to, ctx: ctx, stream: stream, stalled: time.AfterFunc(stallWait, cancel)}
			require.NoError(t, s.run(func(context.Context, uint64, []byte) (Checkpoint, error) { return slow{f}, nil }))
			require.Equal(t, len(f.contents["STORE"])+len(f.contents["CLOCK"]), stream.sent)
			require.Equal(t, want, ctx.Err(), "requests after %v", pause)
			time.Sleep(time.Hour)
			require.Equal(t, want, ctx.Err(), "after the end")
		})
	}
}

// A list in several parts.
func TestLongList(t *testing.T) {
	n1, n2, _, _, _ := pair(t, nil)
	f := checkpoint()
	f.names = slices.Repeat(f.names, listChunk/2)
	n2.ServeFiles(open(f))
	remote, err := n1.Files(testwait.Context(t), 2, []byte("token"))
	require.NoError(t, err)
	require.Equal(t, f.Info(), remote.Info())
	require.NoError(t, remote.Close())
}

// A stranger gets no files.
func TestFilesOfStrangers(t *testing.T) {
	n := start(t, options(2), &inbox{})
	n.ServeFiles(open(checkpoint()))
	me := identity{cluster: testCluster, from: 1, to: 2, layout: testLayout}
	stream, err := caller(t, n).Files(metadata.NewOutgoingContext(testwait.Context(t), me.metadata()))
	require.NoError(t, err)
	_, err = stream.Recv()
	require.ErrorContains(t, err, "is no member")
}
