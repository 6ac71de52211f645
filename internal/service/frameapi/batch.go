package frameapi

import (
	"context"
	"errors"
	"math/bits"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
)

// batchKey says which operations of a frame the store may serve together without
// one of them waiting for what only another one asked for.
type batchKey struct {
	read bool
	at   kv.SeqNum // of reads: a snapshot's version, 0 for the newest
	// together: reads that are answered at one version, all reads of a frame.
	together bool

	durability kv.Durability // of writes
	// looks: writes with a condition, or that return what the key held. The store
	// reads for them, which one that just writes need not wait for.
	looks bool

	// timeoutBits is the number of bits of the timeout, so that the timeouts of a batch
	// are within a factor of two of each other; 0 is the server's default.
	timeoutBits int
}

// keyOf returns the key of an operation, which may be one that [Pipeline.classify] refuses.
func keyOf(f *frame.Request, op *frame.Op) batchKey {
	switch {
	case f.OneVersion:
		return batchKey{read: true, together: true}
	case op.Kind == frame.Get:
		return batchKey{read: true, at: kv.SeqNum(op.AtVersion), timeoutBits: bits.Len32(op.TimeoutMillis)}
	}
	return batchKey{
		durability:  durabilityOf(op.Options.Durability),
		looks:       op.Condition.Kind != 0 || op.ReturnPrevious,
		timeoutBits: bits.Len32(op.TimeoutMillis),
	}
}

// newest: independent reads of the newest state.
func (k *batchKey) newest() bool { return k.read && !k.together && k.at == 0 }

// batch is the operations of one frame that have the same key: one call of the store and
// one answer, or several if what is read is large.
type batch struct {
	pipeline *Pipeline
	token    *ReceiveToken // of the worker, nil if the frame has other batches
	request  *frame.Request
	key      batchKey
	timeout  time.Duration // the longest of its operations; 0 is the default

	ops      []*frame.Op
	answered int          // of ops, from the first: they are in a response
	asked    int          // of ops, after the answered ones: in the last call of the store
	failed   service.Code // of all that the last call of the store was asked for

	call    service.Call
	lookups []kv.Lookup // of the ops asked
	reads   []*kv.Lookup

	changes []kv.Write // of all ops
	looks   []look     // of all ops, if the key says so
	writes  []*kv.Write

	response frame.Response
	bytes    int   // of values in response
	sent     int   // bytes of values in all responses
	lent     int64 // of the budget, for values in response
}

// look is what a write points to if it looks at what the key held.
type look struct {
	condition kv.Condition
	previous  kv.Lookup
}

// maxBatchWorkers bounds the batches of one frame that are served at the same time. The others wait
// for these, but for none that writes: only versions make so many batches, and reads at a version
// are the last ones. Guessed: as many as calls.
const maxBatchWorkers = maxCallWorkers

// oneBatchBytes is what a batch occupies beside its operations and the goroutine that serves it.
var oneBatchBytes = int64(reflect.TypeFor[batch]().Size() + reflect.TypeFor[lazyDeadline]().Size())

// batchBytes returns what the batches of a frame occupy beside its bytes and operations. The first
// one is served by the worker that has received the frame, or in its place.
func batchBytes(f *frame.Request) int64 {
	var keys keyIndex
	for i := range f.Ops {
		keys.add(keyOf(f, &f.Ops[i]))
	}
	further := max(keys.count-1, 0)
	return int64(further)*oneBatchBytes + int64(min(further, maxBatchWorkers))*callWorkerBytes
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// split checks the operations of a frame that came at a time, answers those that
// can never succeed or need not, and appends batches of the others to split, which is empty.
func (p *Pipeline) split(split []*batch, f *frame.Request, t *ReceiveToken, caller service.Caller, begun time.Time) []*batch {
	var keys keyIndex // of split
	var refused []frame.Result
	var over error // of operations that are answered together
	if f.OneVersion {
		over = p.server.Charge(caller.Identity, begun, len(f.Ops), f.Bytes())
	}
	for i := range f.Ops {
		op := &f.Ops[i]
		if op.Skipped {
			refused = append(refused, frame.Result{Tag: op.Tag, Skipped: true})
			continue
		}
		err, bytes := over, len(op.Key)+len(op.Value)+len(op.Condition.Value)
		if !f.OneVersion {
			err = p.server.Charge(caller.Identity, begun, 1, bytes)
		}
		var change kv.Write
		var condition kv.Condition
		if err == nil {
			change, condition, err = p.classify(&caller, op)
		}
		if err != nil {
			m := p.methodOf(op)
			why := p.server.Failure(m, err)
			m.Count(why.Code, 1)
			refused = append(refused, resultOf(why, op.Tag))
			continue
		}
		k := keyOf(f, op)
		number, fresh := keys.add(k)
		if fresh {
			b := batches.Get().(*batch)
			b.pipeline, b.request, b.key, b.call.Begun, b.call.Caller = p, f, k, begun, caller
			b.call.Session = p.session
			split = append(split, b)
		}
		b := split[number]
		b.ops = append(b.ops, op)
		b.call.Charged += bytes
		if !k.read {
			b.changes = append(grown(b.changes, len(f.Ops)-i), change)
		}
		if k.looks {
			b.looks = append(b.looks, look{condition, kv.Lookup{Key: op.Key}})
		}
		b.timeout = max(b.timeout, time.Duration(op.TimeoutMillis)*time.Millisecond)
	}
	if len(refused) > 0 {
		p.transport.Send(&frame.Response{Compact: f.Compact, ID: f.ID, Results: refused}, t)
	}
	return split
}

// grown returns all with room for more elements, which it makes for all of them at once.
func grown[T any](all []T, more int) []T {
	if len(all) == cap(all) {
		return slices.Grow(all, more)
	}
	return all
}

// classify checks an operation. A write comes translated, with its condition.
func (p *Pipeline) classify(caller *service.Caller, op *frame.Op) (w kv.Write, condition kv.Condition, err error) {
	caller.Method = p.methodOf(op).String()
	if op.Kind == frame.Get {
		if err := p.server.CheckKey(caller, op.Key); err != nil {
			return w, condition, err
		}
		_, err = p.server.ReadVersion(op.AtVersion, op.Epoch)
		return w, condition, err
	}
	condition = conditionOf(&op.Condition)
	w = writeOf(op)
	err = p.server.CheckWrite(caller, &w, &condition, op.TTLMillis, op.ReturnPrevious)
	return w, condition, err
}

// readBytes bounds the values that one call of the store brings into memory, except for the
// last of them: as much as a page of a scan has.
const readBytes = 1 << 20

// previousOps bounds the writes of one call that return what the key held, since the size
// of that is not known before. Guessed.
const previousOps = 16

// responseBytes is the size from which on a response is sent and another begun.
// Small, so that a large value does not delay the answers after it.
const responseBytes = 256 << 10

// serve has the store perform the batch and answers each operation. It reports
// whether the store may still use memory of the frame; the batch is then left to
// the garbage collector, else it is ready for other operations.
func (b *batch) serve() (held bool) {
	if !b.key.newest() {
		b.token.Pass()
	}
	timeout := b.timeout
	if timeout == 0 {
		timeout = b.pipeline.server.Options().Deadline
	}
	timeout = min(timeout, b.pipeline.server.MaxDeadline())
	ctx := newLazyDeadline(b.pipeline.ctx, b.call.Begun.Add(timeout))
	defer ctx.end()
	b.call.Budget.Charge(b.pipeline.server.Memory())
	b.point()
	for b.answered < len(b.ops) {
		panicked, err := b.askStore(ctx)
		switch {
		case err != nil:
			b.failAll(err)
			held = held || panicked || errors.Is(err, kv.ErrUncertain)
		case b.key.read:
			b.answerReads()
		default:
			held = b.answerWrites() || held
		}
		if err := b.awaitRoom(ctx); err != nil {
			b.failAll(err)
		}
	}
	b.flush()
	b.call.Budget.Return()
	b.finish()
	if !held {
		b.reset()
		batches.Put(b)
	}
	return held
}

// awaitRoom waits for memory if the last call of the store had too little to bring a
// value. It fails if the quota of the client refused one.
func (b *batch) awaitRoom(ctx context.Context) error {
	left := len(b.ops) - b.answered
	if left == 0 {
		return nil
	}
	if err := b.pipeline.server.Unread(&b.call, left); err != nil || b.call.Budget.Short() == 0 {
		return err
	}
	b.token.Pass()
	b.flush()
	return b.pipeline.server.NoMemory(b.call.Budget.Await(ctx))
}

// point sets the pointers of the writes, now that the slices they point into do not grow
// any more.
func (b *batch) point() {
	for i := range b.changes {
		w := &b.changes[i]
		if b.key.looks {
			if b.looks[i].condition.Kind != kv.Unconditional {
				w.If = &b.looks[i].condition
			}
			if b.ops[i].ReturnPrevious {
				w.Previous = &b.looks[i].previous
				w.Previous.Budget = &b.call.Budget
			}
		}
		b.writes = append(b.writes, w)
	}
}

// askStore is one call of the store: for the next reads or writes, which is all plain
// writes. A panic there fails this batch alone; one of the engine ends the process first.
func (b *batch) askStore(ctx context.Context) (panicked bool, err error) {
	s := b.pipeline.server
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, s.Panicked(b.pipeline.methodOf(b.ops[0]), v)
		}
	}()
	if b.key.together {
		return false, b.readTogether(ctx)
	}
	if b.key.read {
		if err := ctx.Err(); err != nil {
			return false, err // the time of the batch is over: the rest is not read
		}
		b.ask(min(len(b.ops)-b.answered, s.Limits().BatchOps))
		if b.key.newest() {
			return false, b.readNewest(ctx)
		}
		b.call.Budget.Reset(readBytes)
		_, err := s.LookupAt(ctx, &b.call, b.reads, b.key.at)
		return false, err
	}
	b.asked = 0
	for previous := 0; b.answered+b.asked < len(b.ops) && previous < previousOps; b.asked++ {
		if b.writes[b.answered+b.asked].Previous != nil {
			previous++
		}
	}
	b.call.Budget.Reset(readBytes)
	return false, s.Write(ctx, &b.call, b.writes[b.answered:][:b.asked])
}

// ask prepares the lookups of the next n operations.
func (b *batch) ask(n int) {
	b.asked, b.lookups, b.reads = n, slices.Grow(b.lookups[:0], n)[:n], b.reads[:0]
	for i, op := range b.ops[b.answered:][:n] {
		l := &b.lookups[i]
		*l = kv.Lookup{Key: op.Key, Budget: &b.call.Budget, Value: l.Value[:0]}
		b.reads = append(b.reads, l)
	}
}

// readNewest has the store answer the lookups: with the token those that memory has,
// and after it was passed on all others.
func (b *batch) readNewest(ctx context.Context) error {
	s, reads := b.pipeline.server, b.reads
	if b.token.kept() {
		b.call.Budget.ResetExact(tokenBytes)
		left, err := s.LookupCached(&b.call, reads)
		if err != nil || len(left) == 0 {
			return err
		}
		reads = left
		b.token.Pass()
	}
	b.call.Budget.Reset(readBytes)
	return s.Lookup(ctx, &b.call, reads, b.lookups)
}

// readTogether has the store answer all reads at one version.
func (b *batch) readTogether(ctx context.Context) error {
	s := b.pipeline.server
	if err := s.CheckKeys(len(b.ops)); err != nil {
		return err
	}
	clear(b.lookups)
	b.ask(len(b.ops))
	_, err := s.GetMany(ctx, &b.call, b.reads, 0)
	return err
}

// answerReads answers what the last call has read. Reads that exceeded the budget are the
// first ones of the next call.
func (b *batch) answerReads() {
	asked := b.ops[b.answered:][:b.asked]
	s := b.pipeline.server
	succeeded, absent, left := 0, 0, 0
	for i, op := range asked {
		switch l := &b.lookups[i]; {
		case errors.Is(l.Err, kv.ErrBudgetSpent):
			asked[left] = op
			left++
		case l.Err != nil:
			b.fail(op, s.Failure(b.pipeline.methodGet, l.Err))
		case !l.Found:
			absent++
			b.add(resultOf(service.KeyNotFound(l.ReadVersion), op.Tag))
		default:
			succeeded++
			b.add(frame.Result{
				Tag: op.Tag, Kind: frame.Get, Version: uint64(l.ReadVersion),
				Value: l.Value, ItemVersion: uint64(l.Version), TTLMillis: s.TimeLeft(l.Expiry),
			})
			if cap(l.Value) > keptValue {
				l.Value = nil // the response has it
			}
		}
	}
	b.answered += len(asked) - left
	copy(b.ops[b.answered:], asked[:left])
	if b.answered < len(b.ops) {
		b.token.Pass()
		b.flush() // before the next lookups use the memory of these
	}
	b.pipeline.methodGet.Count(service.OK, succeeded)
	b.pipeline.methodGet.Count(service.NotFound, absent)
}

// answerWrites answers what the last call has written. It reports whether the
// store may still use memory of the frame.
func (b *batch) answerWrites() (held bool) {
	s := b.pipeline.server
	puts, deletes, left := 0, 0, 0
	asked, written := b.ops[b.answered:][:b.asked], b.writes[b.answered:][:b.asked]
	for i, op := range asked {
		w := written[i]
		if errors.Is(w.Err, kv.ErrBudgetSpent) { // nothing was done
			asked[left], written[left] = op, w
			left++
			continue
		}
		if w.Err != nil {
			held = held || errors.Is(w.Err, kv.ErrUncertain)
			b.fail(op, s.Failure(b.pipeline.methodOf(op), w.Err))
			continue
		}
		if op.Kind == frame.Put {
			puts++
		} else {
			deletes++
		}
		r := frame.Result{Tag: op.Tag, Kind: op.Kind, Version: uint64(w.Version), Deduplicated: w.Deduplicated}
		if service.HadPrevious(w) {
			r.HasPrevious, r.Value, r.ItemVersion = true, w.Previous.Value, uint64(w.Previous.Version)
			r.TTLMillis = s.TimeLeft(w.Previous.Expiry)
			w.Previous.Value = nil // the response has it
		}
		b.add(r)
	}
	b.answered += b.asked - left
	copy(b.ops[b.answered:], asked[:left])
	copy(b.writes[b.answered:], written[:left])
	if b.answered < len(b.ops) {
		b.flush() // before there are more
	}
	b.pipeline.methodPut.Count(service.OK, puts)
	b.pipeline.methodDelete.Count(service.OK, deletes)
	return held
}

// failAll answers every operation that is not answered yet with the error of the
// whole call.
func (b *batch) failAll(err error) {
	why := b.pipeline.server.Failure(b.pipeline.methodOf(b.ops[0]), err)
	for _, op := range b.ops[b.answered:] {
		b.fail(op, why)
	}
	b.answered, b.failed = len(b.ops), why.Code
}

func (b *batch) fail(op *frame.Op, why *service.Error) {
	b.pipeline.methodOf(op).Count(why.Code, 1)
	b.add(resultOf(why, op.Tag))
}

// add puts an answer into the response, and sends that when it is large.
func (b *batch) add(r frame.Result) {
	b.response.Results = append(grown(b.response.Results, len(b.ops)-b.answered), r)
	if len(r.Value) > 0 {
		b.lent += b.call.Budget.Part(len(r.Value))
	}
	b.sent += len(r.Value)
	if b.bytes += len(r.Value); b.bytes >= responseBytes {
		b.flush()
	}
}

// flush sends what has been answered.
func (b *batch) flush() {
	if len(b.response.Results) > 0 {
		b.response.Compact, b.response.ID = b.request.Compact, b.request.ID
		if b.request.Timed {
			b.response.Timings = appendTimings(b.response.Timings[:0], &b.call)
		}
		if b.lent > 0 {
			b.response.Lender, b.response.Lent = b.pipeline.server.Memory(), b.lent
			b.lent = 0
		}
		b.pipeline.transport.Send(&b.response, b.token)
		b.response.Release()
		b.bytes = 0
	}
}

// keptValue bounds the memory that a pooled batch keeps for each value. Guessed.
const keptValue = 1 << 10

// keepValues forgets the lookups, but for the memory of values that are not large,
// which those of the next frame use.
func (b *batch) keepValues() {
	all := b.lookups[:cap(b.lookups)]
	for i := range all {
		l := &all[i]
		if l.Key == nil && l.Value == nil {
			continue
		}
		value := l.Value
		if cap(value) > keptValue {
			value = nil
		}
		*l = kv.Lookup{Value: value[:0]}
	}
}

// finish notes where the time went, while the keys of the frame are still there.
func (b *batch) finish() {
	p := b.pipeline
	p.server.Settle(&b.call, b.sent)
	p.server.Finish(p.conn, p.methodOf(b.ops[0]), b.failed, &b.call, func() (l service.Load) {
		for _, op := range b.ops {
			l.Add(op.Key, len(op.Value))
		}
		return l
	})
}

// reset forgets the operations and keeps the memory.
func (b *batch) reset() {
	clear(b.ops)
	b.keepValues()
	clear(b.reads)
	clear(b.changes)
	clear(b.looks)
	clear(b.writes)
	*b = batch{
		ops: b.ops[:0], lookups: b.lookups[:0], reads: b.reads[:0],
		changes: b.changes[:0], looks: b.looks[:0], writes: b.writes[:0], response: b.response,
	}
}
