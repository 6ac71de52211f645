package kvd

import (
	"bytes"
	"context"
	"fmt"

	"google.golang.org/grpc"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Batch is a set of writes that Apply performs all at one version, or none. It
// is built without I/O and copies what it is given. The zero value is empty. Not
// safe for concurrent use.
type Batch struct {
	mutations []*kvdpb.Mutation
	emptyKey  bool
}

// Put adds a put; a later write of the same key in the batch replaces it.
func (b *Batch) Put(key, value []byte) *Batch {
	item := &kvdpb.Item{Key: bytes.Clone(key), Value: bytes.Clone(value)}
	return b.add(key, &kvdpb.Mutation{Op: &kvdpb.Mutation_Put{Put: item}})
}

// Delete adds a delete; a later write of the same key in the batch replaces it.
func (b *Batch) Delete(key []byte) *Batch {
	return b.add(key, &kvdpb.Mutation{Op: &kvdpb.Mutation_Delete{Delete: bytes.Clone(key)}})
}

func (b *Batch) add(key []byte, m *kvdpb.Mutation) *Batch {
	b.emptyKey = b.emptyKey || len(key) == 0
	b.mutations = append(b.mutations, m)
	return b
}

// Len returns the number of writes.
func (b *Batch) Len() int { return len(b.mutations) }

// Reset empties the batch.
func (b *Batch) Reset() {
	clear(b.mutations)
	b.mutations, b.emptyKey = b.mutations[:0], false
}

// Apply performs the writes of the batch, all of them at the version that it
// returns, or none. The batch stays as it is. Errors are those of Put; an empty
// batch is ErrInvalid.
func (c *Client) Apply(ctx context.Context, b *Batch, opts ...WriteOption) (version uint64, err error) {
	o, err := c.writeOptions(opts)
	switch {
	case err != nil:
	case b.emptyKey:
		err = errEmptyKey
	case b.Len() == 0:
		err = fmt.Errorf("%w: the batch is empty", ErrInvalid)
	}
	if err != nil {
		return 0, &Error{Op: "apply", Err: err}
	}
	request := &kvdpb.WriteRequest{
		Mutations: b.mutations,
		Atomic:    true,
		Options:   &kvdpb.RequestOptions{Durability: o.durability.wire()},
	}
	err = c.unary(ctx, "apply", true, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		response, err := conn.kv.Write(ctx, request, opts...)
		version = response.GetMeta().GetVersion()
		return err
	})
	return version, err
}
