package kvd

import (
	"bytes"
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Batch is a set of writes that Apply performs all at one version, or none. It
// is built without I/O and copies what it is given. The zero value is empty. Not
// safe for concurrent use.
type Batch struct {
	mutations []*kvdpb.Mutation
	// conditions counts the writes under a condition; fleeting: one of these may fail now
	// and hold later.
	conditions int
	fleeting   bool
	err        error // of the first write that makes no sense
}

// Put adds a put; a later write of the same key in the batch replaces it. It
// takes TTL and a condition. The conditions of a batch are judged on the state
// before it, and all must hold, also that of a write that is replaced.
func (b *Batch) Put(key, value []byte, opts ...WriteOption) *Batch {
	o := b.options(key, opts, within)
	item := &kvdpb.Item{Key: bytes.Clone(key), Value: bytes.Clone(value), TtlMs: ttlMillis(o.ttl)}
	return b.add(&kvdpb.Mutation{Op: &kvdpb.Mutation_Put{Put: item}, Precondition: precondition(&o.condition)})
}

// Delete adds a delete; a later write of the same key in the batch replaces it.
// It takes a condition.
func (b *Batch) Delete(key []byte, opts ...WriteOption) *Batch {
	o := b.options(key, opts, choseCondition)
	return b.add(&kvdpb.Mutation{Op: &kvdpb.Mutation_Delete{Delete: bytes.Clone(key)}, Precondition: precondition(&o.condition)})
}

// DeleteRange adds the removal of every key of a range, but for those that later
// writes of the batch put. A range whose start is not below its end removes nothing.
func (b *Batch) DeleteRange(r Range) *Batch {
	return b.add(&kvdpb.Mutation{Op: &kvdpb.Mutation_DeleteRange{DeleteRange: r.clone().wire()}})
}

func (b *Batch) options(key []byte, opts []WriteOption, takes choices) writeOptions {
	if len(key) == 0 {
		b.fail(errEmptyKey)
	}
	if len(opts) == 0 {
		return writeOptions{}
	}
	o, err := collect(opts, takes)
	b.fail(err)
	if o.condition.Kind != 0 {
		b.conditions++
		b.fleeting = b.fleeting || o.condition.Kind != frame.VersionEquals
	}
	o.condition.Value = bytes.Clone(o.condition.Value)
	return o
}

func (b *Batch) fail(err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("write %d of the batch: %w", len(b.mutations), err)
	}
}

func (b *Batch) add(m *kvdpb.Mutation) *Batch {
	b.mutations = append(b.mutations, m)
	return b
}

// Len returns the number of writes.
func (b *Batch) Len() int { return len(b.mutations) }

// len is Len, of no batch too.
func (b *Batch) len() int {
	if b == nil {
		return 0
	}
	return b.Len()
}

// wire returns the writes as the protocol has them; none of no batch. They share
// memory with the batch.
func (b *Batch) wire() []*kvdpb.Mutation {
	if b == nil {
		return nil
	}
	return b.mutations
}

// Reset empties the batch.
func (b *Batch) Reset() {
	clear(b.mutations)
	*b = Batch{mutations: b.mutations[:0]}
}

// Apply performs the writes of the batch, all of them at the version that it
// returns, or none. The batch stays as it is. It takes Durable and Timed.
//
// Errors are those of Put, where ErrConflict means that a condition did not hold;
// an empty batch, and one with a write that makes no sense, is ErrInvalid.
func (c *Client) Apply(ctx context.Context, b *Batch, opts ...WriteOption) (version uint64, err error) {
	o, err := c.writeOptions(opts, ofCommit)
	switch {
	case err != nil:
	case b.err != nil:
		err = b.err
	case b.Len() == 0:
		err = fmt.Errorf("%w: the batch is empty", ErrInvalid)
	}
	if err != nil {
		return 0, &Error{Op: "apply", Err: err}
	}
	request := &kvdpb.WriteRequest{Mutations: b.mutations, Atomic: true}
	return c.unaryWrite(ctx, "apply", &o, !b.fleeting, func(ctx context.Context, conn *conn, options *kvdpb.RequestOptions, opts ...grpc.CallOption) (*kvdpb.ResponseMeta, error) {
		request.Options = options
		response, err := conn.kv.Write(ctx, request, opts...)
		return response.GetMeta(), err
	})
}
