package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/kv"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

const (
	// fileChunk is how much of a file one message has, and listChunk how many files.
	fileChunk = 256 << 10
	listChunk = 4096
	// maxTokenBytes bounds what names a checkpoint.
	maxTokenBytes = 1 << 10
	// stallWait ends a transfer in which this node waits for so long for the other one to ask for
	// something, or to take it: its checkpoint holds space.
	stallWait = time.Minute
	// maxListed bounds the files of a checkpoint.
	maxListed = 1 << 20
)

// Checkpoint is one version of the store, whose files stay as they are until Release.
type Checkpoint interface {
	backup.Source
	Release()
}

// ServeFiles lets other members fetch the files of checkpoints. open returns the one that a
// token names, for a node, or why it cannot be had; the other node is told. One is fetched at a
// time, as fast as the checkpoint lets its files be read.
func (n *Network) ServeFiles(open func(ctx context.Context, node uint64, token []byte) (Checkpoint, error)) {
	n.checkpoints.Store(&open)
}

// Files implements peerpb.PeerServiceServer.
func (s *service) Files(stream grpc.BidiStreamingServer[peerpb.FilesRequest, peerpb.FilesResponse]) error {
	n := s.network
	hello, from, err := n.welcome(stream.Context(), n.from)
	if err != nil {
		return err
	}
	open := n.checkpoints.Load()
	switch {
	case open == nil:
		return status.Error(codes.Unavailable, "this node has no checkpoints to send")
	case !n.sending.CompareAndSwap(false, true):
		return status.Error(codes.ResourceExhausted, "this node sends files to another node; try again later")
	}
	if err := stream.SendHeader(n.answers(hello).metadata()); err != nil {
		n.sending.Store(false)
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	t := &sender{network: n, to: from, ctx: ctx, stream: stream}
	t.stalled = time.AfterFunc(n.stallWait, func() {
		cancel(status.Errorf(codes.DeadlineExceeded, "the node took nothing for %v", n.stallWait))
	})
	ended := make(chan error, 1)
	n.running.Go(func() {
		err := t.run(*open)
		t.stalled.Stop()
		n.sending.Store(false)
		ended <- err
	})
	defer cancel(nil)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.ctx.Done():
		return status.Error(codes.Unavailable, "the node is about to end")
	}
}

// sender sends one checkpoint.
type sender struct {
	network *Network
	to      *member
	ctx     context.Context
	stream  grpc.BidiStreamingServer[peerpb.FilesRequest, peerpb.FilesResponse]
	stalled *time.Timer // runs while the other node is waited for
}

func (s *sender) run(open func(context.Context, uint64, []byte) (Checkpoint, error)) error {
	request, err := s.receive()
	if err != nil {
		return err
	}
	if token := request.GetToken(); len(token) == 0 || len(token) > maxTokenBytes {
		return status.Errorf(codes.InvalidArgument, "the first request names a checkpoint in %d bytes, want 1 to %d", len(token), maxTokenBytes)
	}
	checkpoint, err := open(s.ctx, s.to.id, request.GetToken())
	if err != nil {
		return status.Errorf(codes.Unavailable, "the checkpoint cannot be had: %v", err)
	}
	defer checkpoint.Release()
	info := checkpoint.Info()
	if err := s.list(info); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, f := range info.Files {
		names[f.Name] = true
	}
	for {
		request, err := s.receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case !names[request.GetName()]:
			return status.Errorf(codes.InvalidArgument, "the checkpoint has no file %q", request.GetName())
		}
		if err := s.file(checkpoint, request); err != nil {
			return err
		}
	}
}

// list sends the list of files.
func (s *sender) list(info backup.Info) error {
	files := info.Files
	for last := false; !last; {
		n := min(len(files), listChunk)
		list := &peerpb.FileList{Store: info.StoreID, Version: uint64(info.Version)}
		for _, f := range files[:n] {
			list.Files = append(list.Files, &peerpb.File{Name: f.Name, Bytes: f.Size})
		}
		files = files[n:]
		last = len(files) == 0
		if err := s.send(&peerpb.FilesResponse{List: list, Last: last}); err != nil {
			return err
		}
	}
	return nil
}

// file sends a file, or nothing of it if its checksum is known.
func (s *sender) file(c Checkpoint, request *peerpb.FilesRequest) (err error) {
	sum, content, err := c.Fetch(s.ctx, request.GetName(), request.GetKnown())
	if err != nil {
		return status.Errorf(codes.Unavailable, "read %s: %v", request.GetName(), err)
	}
	if content == nil {
		return s.send(&peerpb.FilesResponse{Sum: sum, Last: true})
	}
	if closer, ok := content.(io.Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	if err := s.send(&peerpb.FilesResponse{Sum: sum}); err != nil {
		return err
	}
	buf := make([]byte, fileChunk)
	for {
		n, err := io.ReadFull(content, buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return status.Errorf(codes.Unavailable, "read %s: %v", request.GetName(), err)
		}
		err = s.send(&peerpb.FilesResponse{Data: buf[:n], Last: last})
		if err == nil {
			s.to.sentFileBytes.Add(uint64(n))
		}
		if err != nil || last {
			return err
		}
	}
}

// await waits for the other node, for stallWait.
func (s *sender) await(node func() error) error {
	s.stalled.Reset(s.network.stallWait)
	defer s.stalled.Stop()
	return node()
}

func (s *sender) receive() (request *peerpb.FilesRequest, err error) {
	err = s.await(func() (err error) {
		request, err = s.stream.Recv()
		return err
	})
	return request, err
}

// send sends a part.
func (s *sender) send(r *peerpb.FilesResponse) error {
	if s.network.member(s.to.id) != s.to {
		return status.Error(codes.PermissionDenied, "the node was removed")
	}
	return s.await(func() error { return s.stream.Send(r) })
}

// RemoteFiles is a checkpoint of another node. It implements backup.Source, for
// backup.Receive, and is for one goroutine.
type RemoteFiles struct {
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	stream grpc.BidiStreamingClient[peerpb.FilesRequest, peerpb.FilesResponse]
	info   backup.Info
	unread bool // a file was not read to its end
}

var _ backup.Source = (*RemoteFiles)(nil)

// Files asks another node for the files of the checkpoint that a token names, over a connection
// of its own. The caller calls Close. ctx ends the transfer.
//
// Errors: kv.ErrInvalidArgument if there is no such member; what the other node says.
func (n *Network) Files(ctx context.Context, node uint64, token []byte) (*RemoteFiles, error) {
	m := n.member(node)
	if m == nil {
		return nil, fmt.Errorf("%w: node %d is no other member", kv.ErrInvalidArgument, node)
	}
	l := m.link.Load()
	conn, err := dial(l.address, l.creds)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &RemoteFiles{conn: conn, cancel: cancel}
	if err := f.begin(ctx, n.calls(node, noLane), token); err != nil {
		return nil, errors.Join(fmt.Errorf("files of node %d: %w", node, err), f.Close())
	}
	return f, nil
}

// begin makes the stream and gets the list.
func (f *RemoteFiles) begin(ctx context.Context, me identity, token []byte) (err error) {
	f.stream, err = peerpb.NewPeerServiceClient(f.conn).Files(metadata.NewOutgoingContext(ctx, me.metadata()))
	if err != nil {
		return explain(err)
	}
	_ = f.stream.Send(&peerpb.FilesRequest{Token: token}) // if it fails, Recv says why
	for first := true; ; first = false {
		r, err := f.stream.Recv()
		if err != nil {
			return explain(err)
		}
		if first {
			header, err := f.stream.Header()
			if err == nil {
				err = checkAnswer(header, me)
			}
			if err != nil {
				return explain(err)
			}
		}
		list := r.GetList()
		if list == nil || len(f.info.Files)+len(list.GetFiles()) > maxListed {
			return fmt.Errorf("%w: the list of files is missing, or has more than %d", kv.ErrCorrupt, maxListed)
		}
		f.info.StoreID, f.info.Version = list.GetStore(), kv.SeqNum(list.GetVersion())
		for _, file := range list.GetFiles() {
			f.info.Files = append(f.info.Files, backup.File{Name: file.GetName(), Size: file.GetBytes()})
		}
		if r.GetLast() {
			return nil
		}
	}
}

// Info implements backup.Source.
func (f *RemoteFiles) Info() backup.Info { return f.info }

// Fetch implements backup.Source. ctx is that of Files.
func (f *RemoteFiles) Fetch(_ context.Context, name string, known []uint64) (sum uint64, content io.Reader, err error) {
	if f.unread {
		return 0, nil, fmt.Errorf("%w: the file before %s was not read to its end", kv.ErrInvalidArgument, name)
	}
	_ = f.stream.Send(&peerpb.FilesRequest{Name: name, Known: known}) // if it fails, Recv says why
	r, err := f.stream.Recv()
	if err != nil {
		return 0, nil, explain(err)
	}
	if r.GetLast() && len(r.GetData()) == 0 {
		return r.GetSum(), nil, nil
	}
	f.unread = true
	return r.GetSum(), &remoteFile{files: f, rest: r.GetData(), last: r.GetLast()}, nil
}

// Close ends the transfer. Idempotent.
func (f *RemoteFiles) Close() error {
	f.cancel()
	if f.conn == nil {
		return nil
	}
	conn := f.conn
	f.conn = nil
	return conn.Close()
}

// remoteFile reads one file.
type remoteFile struct {
	files *RemoteFiles
	rest  []byte
	last  bool
}

// Read implements io.Reader.
func (r *remoteFile) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.last {
			r.files.unread = false
			return 0, io.EOF
		}
		next, err := r.files.stream.Recv()
		if err != nil {
			return 0, explain(err)
		}
		r.rest, r.last = next.GetData(), next.GetLast()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
