package grpcapi

import (
	"cmp"
	"context"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
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
func (a *api) Scan(req *kvdpb.ScanRequest, stream grpc.ServerStreamingServer[kvdpb.ScanResponse]) (err error) {
	ctx := stream.Context()
	call := callOf(ctx)
	defer func() {
		if err != nil {
			err = a.server.Failure(call.method, err)
		}
	}()
	fresh, err := messages.FreshnessOf(req.Options)
	if err != nil {
		return err
	}
	asked := service.ScanRequest{
		Range: messages.RangeOf(req.Range), KeysOnly: req.KeysOnly, Reverse: req.Reverse, Limit: req.Limit, Fresh: fresh,
		AtVersion: req.AtVersion, Epoch: req.Epoch, PageToken: req.PageToken,
	}
	budget := &call.work.Budget
	budget.Charge(a.server.Memory())
	defer budget.Return()
	scanner, err := a.server.Scan(ctx, &call.work, &asked)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := scanner.Close(); closeErr != nil && err == nil {
			err = closeErr
		}
	}()
	call.busy.Store(true)
	call.stall.Stop()      // it runs while the client is waited for
	call.took(math.MaxInt) // the request is here
	c := chunk{call: call, ctx: ctx, budget: budget, size: min(orDefault(int(req.ChunkBytes), chunkBytes), maxChunkBytes)}
	defer c.release()
	defer call.watchRights(ctx, func(c *service.Call) error { return a.server.Recheck(c, asked.Range) })()
	sent, pages := uint64(0), 0
	for more := scanner.Next(); ; {
		c.reset()
		for more && c.add(scanner.Item()) && !c.borrowed {
			budget.Return()
			more = scanner.Next()
		}
		if err := cmp.Or(c.err, scanner.Err()); err != nil {
			return cmp.Or(context.Cause(ctx), a.server.NoMemory(err))
		}
		c.response.Meta = meta(scanner.Version())
		if sent += uint64(len(c.response.Items)); more || req.Limit > 0 && sent == req.Limit {
			c.response.NextPageToken = asked.Token(c.lastKey())
		}
		if err := c.pay(pages); err != nil {
			return err
		}
		if err := call.stillMay(); err != nil { // after that, which may wait
			return err
		}
		pages++
		if err := call.awaitClient(func() error { return c.send(stream) }); err != nil {
			return cmp.Or(context.Cause(ctx), a.server.NoMemory(err))
		}
		if !more || req.Limit > 0 && sent == req.Limit {
			return nil
		}
		if c.borrowed {
			more = scanner.Next()
		}
	}
}

// pay takes the chunk from the quota of its client, and waits for that. The request has paid for
// the first page as an operation.
func (c *chunk) pay(pages int) error {
	server, identity := c.call.api.server, c.call.work.Identity
	if identity.Usage() == nil {
		return nil
	}
	return server.Pace(c.ctx, identity, min(pages, 1), proto.Size(&c.response))
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
	call     *call
	size     int // bytes of keys and values, at most
	response kvdpb.ScanResponse
	items    []*kvdpb.Item // made so far
	data     []byte        // keys and values of response.Items, or of the last of them

	ctx    context.Context
	budget *kv.ReadBudget
	bytes  int   // of the items, but for a borrowed value
	held   int64 // of the server's memory, for data and what it was before
	err    error // of waiting for memory
	// borrowed: the chunk has one item, of which the value is the scanner's.
	borrowed bool
}

// leastData is the least memory for the data of a chunk. Guessed: some small items.
const leastData = 4 << 10

func (c *chunk) reset() {
	c.response.Items, c.response.NextPageToken = c.response.Items[:0], ""
	c.data, c.bytes, c.borrowed = c.data[:0], 0, false
	c.keep(int64(cap(c.data)))
}

// keep gives back the memory beyond so many bytes.
func (c *chunk) keep(bytes int64) {
	c.call.api.server.Memory().Give(c.held - bytes)
	c.held = bytes
}

// release gives back the memory of the chunk.
func (c *chunk) release() { c.keep(0) }

// send sends the chunk, and takes memory for its encoded form until the transport has
// written that. What the budget holds for a value of the next chunk stays there.
func (c *chunk) send(stream grpc.ServerStream) error {
	var lent int64
	if c.borrowed {
		item := c.response.Items[0]
		if len(item.Value) > kv.LargeValue {
			return c.sendApart(stream)
		}
		lent = c.budget.Lend()
		defer func() { item.Value = nil }() // it has been encoded
	} else {
		lent = int64(proto.Size(&c.response))
		if err := c.call.api.server.Memory().Wait(c.ctx, lent, c.held+c.budget.Held()); err != nil {
			return err
		}
	}
	return stream.SendMsg(&frame.Lent{Message: &c.response, Lender: c.call.api.lend(c.call.conn, lent), Bytes: lent})
}

// sendApart sends a chunk of one large value, without a copy of the value.
func (c *chunk) sendApart(stream grpc.ServerStream) error {
	head, value, err := takeValue(&c.response)
	if err != nil {
		return err
	}
	lent := c.budget.Lend()
	return stream.SendMsg(&frame.LentParts{Head: head, Tail: value, Lender: c.call.api.lend(c.call.conn, lent), Bytes: lent})
}

// takeValue takes the value from a response of one item, and returns the encoding up to the value,
// which is to follow: protobuf allows the fields of a message in any order, so the item is the last
// field of the response, and the value the last one of the item.
func takeValue(r *kvdpb.ScanResponse) (head, value []byte, err error) {
	item := r.Items[0]
	value, item.Value, r.Items = item.Value, nil, r.Items[:0]
	fields, err := proto.Marshal(item)
	if err != nil {
		return nil, nil, err
	}
	fields = protowire.AppendTag(fields, fieldOf(item, "value"), protowire.BytesType)
	fields = protowire.AppendVarint(fields, uint64(len(value)))
	if head, err = proto.Marshal(r); err != nil {
		return nil, nil, err
	}
	head = protowire.AppendTag(head, fieldOf(r, "items"), protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(fields)+len(value)))
	return append(head, fields...), value, nil
}

func fieldOf(m proto.Message, name protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(name).Number()
}

// room makes room for an item in data, and reports whether there is some. There always
// is for the first item, unless waiting for it failed.
func (c *chunk) room(bytes int) bool {
	if cap(c.data)-len(c.data) >= bytes {
		return true
	}
	memory := c.call.api.server.Memory()
	grown := int64(max(bytes, min(2*cap(c.data), c.size), leastData))
	if !memory.Take(grown, c.held) {
		if len(c.response.Items) > 0 {
			return false // what is there is sent first
		}
		grown = int64(bytes)
		if c.err = memory.Wait(c.ctx, grown, c.held); c.err != nil {
			return false
		}
	}
	c.held += grown
	c.data = make([]byte, 0, grown) // what was copied before stays where it is
	return true
}

// add copies an item into the chunk and reports whether there was room. There
// always is for the first.
func (c *chunk) add(item *kv.Item) bool {
	n := len(c.response.Items)
	size := len(item.Key) + len(item.Value)
	if n == maxChunkItems || n > 0 && c.bytes+size > c.size {
		return false
	}
	c.borrowed = n == 0 && size > c.size && c.budget.Held() > 0
	if c.borrowed {
		size = len(item.Key)
	}
	if !c.room(size) {
		return false
	}
	c.bytes += size
	if n == len(c.items) {
		c.items = append(c.items, new(kvdpb.Item))
	}
	to := c.items[n]
	to.Key, to.Version = c.copy(item.Key), uint64(item.Version)
	if c.borrowed {
		to.Value = item.Value
	} else {
		to.Value = c.copy(item.Value)
	}
	to.TtlMs = c.call.api.server.TimeLeft(item.Expiry)
	c.response.Items = append(c.response.Items, to)
	return true
}

// copy appends b to the data, which has room for it.
func (c *chunk) copy(b []byte) []byte {
	start := len(c.data)
	c.data = append(c.data, b...)
	return c.data[start:len(c.data):len(c.data)]
}

func (c *chunk) lastKey() []byte { return c.response.Items[len(c.response.Items)-1].Key }
