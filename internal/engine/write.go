package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// Put sets key to value and returns the version of the write.
//
// The slices are not kept. Errors: kv.ErrInvalidArgument or kv.ErrTooLarge for
// what can never be stored; kv.ErrOverloaded, kv.ErrReadOnly, kv.ErrClosed,
// kv.ErrFailed or the error of ctx if nothing was written; kv.ErrUncertain if ctx
// ended, or the log failed, while the write was under way.
func (e *Engine) Put(ctx context.Context, key, value []byte, o kv.WriteOptions) (kv.SeqNum, error) {
	return e.writeOne(ctx, kv.Op{Kind: kv.KindPut, Key: key, Value: value}, o)
}

// Delete removes key and returns the version of the write. It does not look
// whether the key was there, and so does not say. Otherwise as Put.
func (e *Engine) Delete(ctx context.Context, key []byte, o kv.WriteOptions) (kv.SeqNum, error) {
	return e.writeOne(ctx, kv.Op{Kind: kv.KindDelete, Key: key}, o)
}

func (e *Engine) writeOne(ctx context.Context, op kv.Op, o kv.WriteOptions) (kv.SeqNum, error) {
	w := kv.Write{Op: op, Durability: o.Durability, Origin: o.Origin}
	if err := e.Write(ctx, []*kv.Write{&w}); err != nil {
		return 0, err
	}
	return w.Version, w.Err
}

// Write applies independent writes, each atomic and acknowledged by itself, and
// returns when all are decided or ctx has ended. Each write has its own result;
// Write itself fails only if none was tried.
//
// Writes of one call on the same key happen in their order; otherwise they have
// none. The slices are borrowed until Write returns. Errors are those of Put.
func (e *Engine) Write(ctx context.Context, writes []*kv.Write) error {
	if err := e.writable(); err != nil {
		return err
	}
	size := 0
	for _, w := range writes {
		w.Version, w.Err = 0, errors.Join(e.checkOp(&w.Op), checkDurability(w.Durability))
		w.Hash = keyhash.Sum(w.Op.Key)
		w.Durability = e.durability(w.Durability)
		size += w.Op.Size()
	}
	if err := e.budget.admit(ctx, size); err != nil {
		return err
	}
	shares := e.shareWrites(writes)
	call := partition.NewCall(len(shares))
	groups := make([]*partition.Group, len(shares))
	for i, s := range shares {
		groups[i] = partition.NewGroup(call, s.writes)
		e.partitions[s.partition].Submit(ctx, groups[i])
	}
	if len(groups) == 0 {
		return nil
	}
	select {
	case <-call.Done():
	case <-ctx.Done():
		for i, s := range shares {
			e.partitions[s.partition].Abandon(groups[i], ctx.Err())
		}
	}
	return nil
}

// writeShare is the writes of one call that go to one partition.
type writeShare struct {
	partition int
	writes    []*kv.Write
}

// shareWrites groups the valid writes by partition and keeps their order.
func (e *Engine) shareWrites(writes []*kv.Write) []writeShare {
	if len(writes) == 1 {
		if writes[0].Err != nil {
			return nil
		}
		return []writeShare{{e.route(writes[0].Hash), writes}}
	}
	valid := make([]*kv.Write, 0, len(writes))
	for _, w := range writes {
		if w.Err == nil {
			valid = append(valid, w)
		}
	}
	slices.SortStableFunc(valid, func(a, b *kv.Write) int { return e.route(a.Hash) - e.route(b.Hash) })
	var shares []writeShare
	for first := 0; first < len(valid); {
		p := e.route(valid[first].Hash)
		end := first + 1
		for end < len(valid) && e.route(valid[end].Hash) == p {
			end++
		}
		shares = append(shares, writeShare{p, valid[first:end]})
		first = end
	}
	return shares
}

// Apply commits an atomic batch: all of its operations happen, at one version,
// or none. Of several operations on one key the last one counts; the batch is
// changed accordingly. Its slices are borrowed until Apply returns.
//
// Errors: as Put.
func (e *Engine) Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error) {
	if err := e.writable(); err != nil {
		return 0, err
	}
	if err := b.Check(e.opts.Limits); err != nil {
		return 0, err
	}
	if err := checkDurability(o.Durability); err != nil {
		return 0, err
	}
	for i := range b.Ops() {
		if err := e.checkOp(&b.Ops()[i]); err != nil {
			return 0, err
		}
	}
	if err := e.budget.admit(ctx, b.Bytes()); err != nil {
		return 0, err
	}
	b.Normalize()
	o.Durability = e.durability(o.Durability)
	ops := b.Ops()
	home := e.route(keyhash.Sum(ops[0].Key))
	for i := range ops[1:] {
		if e.route(keyhash.Sum(ops[1+i].Key)) != home {
			return e.applyAcross(ctx, b, o)
		}
	}
	return e.applyWithin(ctx, e.partitions[home], b, o)
}

// applyWithin commits a batch that lies in one partition, through its inbox.
func (e *Engine) applyWithin(ctx context.Context, p *partition.Partition, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error) {
	call := partition.NewCall(1)
	g := partition.NewBatchGroup(call, b, o.Durability, o.Origin)
	p.Submit(ctx, g)
	select {
	case <-call.Done():
	case <-ctx.Done():
		p.Abandon(g, ctx.Err())
	}
	return g.Result()
}

// applyAcross commits a batch over several partitions: one record, one number.
func (e *Engine) applyAcross(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error) {
	bytes := int64(b.Bytes())
	if err := e.across.take(ctx, bytes); err != nil {
		return 0, err
	}
	record, participants := e.layOutAcross(b.Ops(), o.Origin)
	commit, err := partition.CommitAcross(participants, record, o.Durability, func() { e.across.release(bytes) })
	if err != nil {
		return 0, err
	}
	select {
	case <-commit.Done():
		return commit.Result()
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", kv.ErrUncertain, ctx.Err())
	}
}

// layOutAcross encodes a batch as one record with a section for each partition
// that it touches, and returns these in ascending order.
func (e *Engine) layOutAcross(ops []kv.Op, origin kv.Origin) ([]byte, []*partition.Partition) {
	home := func(op *kv.Op) int { return e.route(keyhash.Sum(op.Key)) }
	sorted := slices.Clone(ops)
	slices.SortFunc(sorted, func(a, b kv.Op) int {
		if d := home(&a) - home(&b); d != 0 {
			return d
		}
		return bytes.Compare(a.Key, b.Key)
	})
	var record kv.RecordEncoder
	var participants []*partition.Partition
	for first := 0; first < len(sorted); {
		p := home(&sorted[first])
		end := first + 1
		for end < len(sorted) && home(&sorted[end]) == p {
			end++
		}
		record.Section(p, end-first)
		for i := first; i < end; i++ {
			record.Op(0, origin, &sorted[i])
		}
		participants = append(participants, e.partitions[p])
		first = end
	}
	return record.Bytes(), participants
}

// checkOp reports whether an operation may be stored.
func (e *Engine) checkOp(op *kv.Op) error {
	if op.Kind == kv.KindRangeDelete || op.Expiry != 0 {
		return fmt.Errorf("%w: range deletes and expiry are not part of this version", kv.ErrInvalidArgument)
	}
	return op.Check(e.opts.Limits)
}

func (e *Engine) durability(d kv.Durability) kv.Durability {
	if d == kv.DurabilityDefault {
		return e.opts.Durability
	}
	return d
}

func checkDurability(d kv.Durability) error {
	if !d.Valid() {
		return fmt.Errorf("%w: %s", kv.ErrInvalidArgument, d)
	}
	return nil
}

// route returns the partition of a hash.
func (e *Engine) route(hash uint64) int { return keyhash.Partition(hash, len(e.partitions)) }
