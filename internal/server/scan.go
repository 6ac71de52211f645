package server

import (
	"cmp"
	"context"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

const (
	// chunkBytes is the size of a chunk if the client does not ask for another.
	chunkBytes = 256 << 10
	// maxChunkBytes and maxChunkItems bound a chunk whatever the client asks for.
	maxChunkBytes = 1 << 20
	maxChunkItems = 1000
)

// Scan implements the method of KVService. The client's flow control paces it;
// a client that takes nothing for as long as a deadline is cut off, because its
// scan holds a version of the store.
func (s *Server) Scan(req *kvdpb.ScanRequest, stream grpc.ServerStreamingServer[kvdpb.ScanResponse]) (err error) {
	ctx := stream.Context()
	whole := rangeOf(req.Range)
	rest, at, err := s.checkScan(whole, req)
	if err != nil {
		return s.failure(methodScan, err)
	}
	scanner, err := s.store.Scan(ctx, rest, kv.ScanOptions{KeysOnly: req.KeysOnly, Limit: req.Limit, Reverse: req.Reverse, At: at})
	if err != nil {
		return s.failure(methodScan, err)
	}
	defer func() {
		if closeErr := scanner.Close(); closeErr != nil && err == nil {
			err = s.failure(methodScan, closeErr)
		}
	}()
	stall := callOf(ctx).stall
	c := chunk{server: s, size: min(orDefault(int(req.ChunkBytes), chunkBytes), maxChunkBytes)}
	sent := uint64(0)
	for more := scanner.Next(); ; {
		c.reset()
		for more && c.add(scanner.Item()) {
			more = scanner.Next()
		}
		if err := scanner.Err(); err != nil {
			return s.failure(methodScan, cmp.Or(context.Cause(ctx), err))
		}
		c.response.Meta = meta(scanner.Version())
		if sent += uint64(len(c.response.Items)); more || req.Limit > 0 && sent == req.Limit {
			c.response.NextPageToken = encodePageToken(whole, req.Reverse, c.lastKey())
		}
		stall.Reset(s.options.Deadline)
		if err := stream.Send(&c.response); err != nil {
			return s.failure(methodScan, cmp.Or(context.Cause(ctx), err))
		}
		if !more {
			return nil
		}
	}
}

// checkScan returns what is left of the range to scan, and the version to scan it
// at.
func (s *Server) checkScan(whole kv.Range, req *kvdpb.ScanRequest) (rest kv.Range, at kv.SeqNum, err error) {
	if err := s.checkRange(whole); err != nil {
		return rest, 0, err
	}
	if at, err = s.readVersion(req.AtVersion, req.Epoch); err != nil || req.PageToken == "" {
		return whole, at, err
	}
	rest, err = decodePageToken(whole, req.Reverse, req.PageToken, s.limits)
	return rest, at, err
}

func orDefault(v, d int) int {
	if v == 0 {
		return d
	}
	return v
}

// chunk collects the items of one response. Its memory is used again for the
// next, since gRPC has encoded a message when Send returns.
type chunk struct {
	server   *Server
	size     int // bytes of keys and values, at most
	response kvdpb.ScanResponse
	items    []*kvdpb.Item // made so far
	data     []byte        // keys and values of response.Items
}

func (c *chunk) reset() {
	c.response.Items, c.response.NextPageToken = c.response.Items[:0], ""
	c.data = c.data[:0]
}

// add copies an item into the chunk and reports whether there was room. There
// always is for the first.
func (c *chunk) add(item *kv.Item) bool {
	n := len(c.response.Items)
	if n == maxChunkItems || n > 0 && len(c.data)+len(item.Key)+len(item.Value) > c.size {
		return false
	}
	if n == len(c.items) {
		c.items = append(c.items, new(kvdpb.Item))
	}
	to := c.items[n]
	to.Key, to.Value, to.Version = c.copy(item.Key), c.copy(item.Value), uint64(item.Version)
	to.TtlMs = c.server.timeLeft(item.Expiry)
	c.response.Items = append(c.response.Items, to)
	return true
}

// copy appends b to the data. When the data moves to a larger array, what was
// copied before stays where it is.
func (c *chunk) copy(b []byte) []byte {
	start := len(c.data)
	c.data = append(c.data, b...)
	return c.data[start:len(c.data):len(c.data)]
}

func (c *chunk) lastKey() []byte { return c.response.Items[len(c.response.Items)-1].Key }
