package grpcapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// backupChunk is how much of a file one message has. A client that is slow on purpose takes
// one within the deadline if it takes two kilobytes a second.
const backupChunk = 64 << 10

// Backup implements the method of AdminService. The checkpoint lasts as long as the stream.
// The rate of the first request and the client's flow control pace it; a client that neither asks for anything nor takes
// anything for as long as a deadline is cut off, because the checkpoint holds space.
// Each part is sent only to a client that may still have it, and the backup ends within seconds
// if that changes while the client takes nothing.
func (a *api) Backup(stream grpc.BidiStreamingServer[kvdpb.BackupRequest, kvdpb.BackupResponse]) (err error) {
	ctx := stream.Context()
	s := backupStream{call: callOf(ctx), ctx: ctx, stream: stream}
	defer s.call.watchRights(ctx, a.server.RecheckAdmin)()
	defer func() {
		if errors.Is(err, kv.ErrVersionGone) {
			err = service.CheckpointEnded
		}
		if err != nil {
			err = a.errorOf(s.call.method, cmp.Or(context.Cause(ctx), err))
		}
	}()
	req, err := s.receive()
	if err != nil {
		return ended(err)
	}
	if req.File != "" {
		return service.Invalidf("the first request of a backup asks for the header, and names no file")
	}
	c, err := a.server.Checkpoint(ctx, int64(min(req.BytesPerSecond, math.MaxInt64)))
	if err != nil {
		return err
	}
	defer c.Release()
	info := c.Info()
	header := &kvdpb.BackupHeader{StoreId: info.StoreID, Version: uint64(info.Version)}
	sizes := make(map[string]int64, len(info.Files))
	for _, f := range info.Files {
		header.Files = append(header.Files, &kvdpb.BackupFile{Name: f.Name, Bytes: uint64(f.Size)})
		sizes[f.Name] = f.Size
	}
	err = s.send(&kvdpb.BackupResponse{Part: &kvdpb.BackupResponse_Header{Header: header}})
	for err == nil {
		if req, err = s.receive(); err != nil {
			return ended(err)
		}
		if _, ok := sizes[req.File]; !ok {
			return service.Invalidf("the header of the backup has no file %q", req.File)
		}
		err = s.sendFile(c, req)
	}
	return err
}

// ended returns nil for the end of the client's requests.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// backupStream is the stream of one backup.
type backupStream struct {
	call   *call
	ctx    context.Context
	stream grpc.BidiStreamingServer[kvdpb.BackupRequest, kvdpb.BackupResponse]
}

// receive waits for a request, within a deadline.
func (s *backupStream) receive() (req *kvdpb.BackupRequest, err error) {
	err = s.call.awaitClient(func() (err error) {
		req, err = s.stream.Recv()
		return err
	})
	if err == nil {
		s.call.took(messagePrefix + proto.Size(req))
	}
	return req, err
}

// send sends a part of an answer, within a deadline, if the client is still an administrator:
// its token may have been revoked. gRPC has encoded the part when send returns.
func (s *backupStream) send(r *kvdpb.BackupResponse) error {
	if err := s.call.api.server.Pace(s.ctx, s.call.work.Identity, 0, len(r.GetData())); err != nil {
		return err
	}
	if err := s.call.stillMay(); err != nil { // after that, which may wait
		return err
	}
	return s.call.awaitClient(func() error { return s.stream.Send(r) })
}

// sendFile answers the request for a file.
func (s *backupStream) sendFile(c service.Checkpoint, req *kvdpb.BackupRequest) (err error) {
	var sum uint64
	var content io.Reader
	err = s.call.whileJudged(func() (err error) { // the rate may make it long
		sum, content, err = c.Fetch(s.ctx, req.File, req.KnownChecksums)
		return err
	})
	if err != nil {
		return err
	}
	if closer, ok := content.(io.Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	begin := &kvdpb.BackupFileBegin{Checksum: sum, Known: content == nil}
	if err := s.send(&kvdpb.BackupResponse{Part: &kvdpb.BackupResponse_Begin{Begin: begin}}); err != nil || content == nil {
		return err
	}
	buf := make([]byte, backupChunk)
	for {
		n, err := io.ReadFull(content, buf)
		if n > 0 {
			if err := s.send(&kvdpb.BackupResponse{Part: &kvdpb.BackupResponse_Data{Data: buf[:n]}}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}
