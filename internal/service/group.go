package service

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

// class says which operations of a frame the store may serve together without
// one of them waiting for what only another one asked for.
type class struct {
	read bool
	at   kv.SeqNum // of reads: a snapshot's version, 0 for the newest
	// together: reads that are answered at one version, all reads of a frame.
	together bool

	durability kv.Durability // of writes
	// looks: writes with a condition, or that return what the key held. The store
	// reads for them, which one that just writes need not wait for.
	looks bool

	// patience is the number of bits of the timeout, so that a group's timeouts
	// are within a factor of two of each other; 0 is the server's default.
	patience int
}

// newest: independent reads of the newest state.
func (c *class) newest() bool { return c.read && !c.together && c.at == 0 }

// group is the operations of one class in one frame: one call of the store and
// one answer, or several if what is read is large.
type group struct {
	pipeline *pipeline
	turn     *turn // of the worker, nil if it is not alone
	request  *frame.Request
	class    class
	timeout  time.Duration // the longest of its operations; 0 is the default

	ops      []*frame.Op
	answered int        // of ops, from the first: they are in a response
	asked    int        // of ops, behind the answered ones: in the last call of the store
	failed   codes.Code // of all that the last call of the store was asked for

	budget  kv.ReadBudget
	lookups []kv.Lookup // of the ops asked
	reads   []*kv.Lookup

	changes []kv.Write // of all ops
	looks   []look     // of all ops, if the class has some
	writes  []*kv.Write

	response frame.Response
	bytes    int   // of values in response
	lent     int64 // of the budget, for values in response

	time timings
}

// look is what a write points to if it looks at what the key held.
type look struct {
	condition kv.Condition
	previous  kv.Lookup
}

var groups = sync.Pool{New: func() any { return new(group) }}

// split checks the operations of a frame that came at a time, answers those that
// can never succeed or need not, and appends groups of the others to split.
func (p *pipeline) split(split []*group, f *frame.Request, t *turn, begun time.Time) []*group {
	var refused []frame.Result
	for i := range f.Ops {
		op := &f.Ops[i]
		if op.Skipped {
			refused = append(refused, frame.Result{Tag: op.Tag, Skipped: true})
			continue
		}
		c, change, condition, err := p.server.classify(op)
		if err != nil {
			why := p.server.failure(methodOfKind(op.Kind), err)
			p.server.counters.request(methodOfKind(op.Kind), why.code, 1)
			refused = append(refused, why.result(op.Tag))
			continue
		}
		if f.OneVersion {
			c = class{read: true, together: true}
		}
		g := find(split, c)
		if g == nil {
			g = groups.Get().(*group)
			g.pipeline, g.request, g.class, g.time.begun = p, f, c, begun
			split = append(split, g)
		}
		g.ops = append(g.ops, op)
		if !c.read {
			g.changes = append(g.changes, change)
		}
		if c.looks {
			g.looks = append(g.looks, look{condition, kv.Lookup{Key: op.Key}})
		}
		g.timeout = max(g.timeout, time.Duration(op.TimeoutMillis)*time.Millisecond)
	}
	if len(refused) > 0 {
		p.send(&frame.Response{Compact: f.Compact, ID: f.ID, Results: refused}, t)
	}
	return split
}

func find(groups []*group, c class) *group {
	for _, g := range groups {
		if g.class == c {
			return g
		}
	}
	return nil
}

// classify checks an operation and names its class. A write comes translated,
// with its condition.
func (s *Server) classify(op *frame.Op) (c class, w kv.Write, condition kv.Condition, err error) {
	c.patience = bits.Len32(op.TimeoutMillis)
	if op.Kind == frame.Get {
		c.read = true
		if err := s.limits.CheckKey(op.Key); err != nil {
			return c, w, condition, invalid(err)
		}
		c.at, err = s.readVersion(op.AtVersion, op.Epoch)
		return c, w, condition, err
	}
	w, condition, err = s.writeOf(op)
	c.durability = w.Durability
	c.looks = condition.Kind != kv.Unconditional || op.ReturnPrevious
	return c, w, condition, err
}

// readBytes bounds the values that one call of the store brings into memory,
// but for the last of them: as much as a page of a scan has.
const readBytes = 1 << 20

// previousOps bounds the writes of one call that return what the key held, since
// it cannot be known before how much that is. Guessed.
const previousOps = 16

// responseBytes is the size from which on a response is sent and another begun.
// Small, so that a large value does not hold up the answers behind it.
const responseBytes = 256 << 10

// serve has the store perform the group and answers each operation. It reports
// whether the store may still use memory of the frame; the group is then left to
// the garbage collector, else it is ready for other operations.
func (g *group) serve() (held bool) {
	if !g.class.newest() {
		g.turn.pass()
	}
	timeout := g.timeout
	if timeout == 0 {
		timeout = g.pipeline.server.options.Deadline
	}
	timeout = min(timeout, g.pipeline.server.options.MaxDeadline)
	ctx := newPatience(g.pipeline.ctx, g.time.begun.Add(timeout))
	defer ctx.end()
	g.budget.Charge(g.pipeline.server.memory)
	g.point()
	for g.answered < len(g.ops) {
		panicked, err := g.call(ctx)
		switch {
		case err != nil:
			g.failAll(err)
			held = held || panicked || errors.Is(err, kv.ErrUncertain)
		case g.class.read:
			g.answerReads()
		default:
			held = g.answerWrites() || held
		}
		if err := g.awaitMemory(ctx); err != nil {
			g.failAll(err)
		}
	}
	g.flush()
	g.budget.Return()
	g.finish()
	if !held {
		g.reset()
		groups.Put(g)
	}
	return held
}

// awaitMemory waits for memory if the last call of the store had too little to bring a
// value.
func (g *group) awaitMemory(ctx context.Context) error {
	if g.answered == len(g.ops) || g.budget.Short() == 0 {
		return nil
	}
	g.turn.pass()
	g.flush()
	return g.pipeline.server.noMemory(g.budget.Await(ctx))
}

// point sets the pointers of the writes, now that what they point to stays where
// it is.
func (g *group) point() {
	for i := range g.changes {
		w := &g.changes[i]
		if g.class.looks {
			if g.looks[i].condition.Kind != kv.Unconditional {
				w.If = &g.looks[i].condition
			}
			if g.ops[i].ReturnPrevious {
				w.Previous = &g.looks[i].previous
				w.Previous.Budget = &g.budget
			}
		}
		g.writes = append(g.writes, w)
	}
}

// call is one call of the store: for the next reads or writes, which is all plain
// writes. A panic there fails this group alone; one of the engine ends the process first.
func (g *group) call(ctx context.Context) (panicked bool, err error) {
	s := g.pipeline.server
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, s.panicked(methodOfKind(g.ops[0].Kind), v)
		}
	}()
	stages := g.time.enter()
	defer g.time.leave()
	if g.class.together {
		return false, g.readTogether(ctx, stages)
	}
	if g.class.read {
		if err := ctx.Err(); err != nil {
			return false, err // nobody waits for the rest of many reads
		}
		g.ask(min(len(g.ops)-g.answered, s.limits.BatchOps), stages)
		if g.class.newest() {
			return false, g.readNewest(ctx)
		}
		g.budget.Reset(readBytes)
		_, err := s.store.LookupAt(ctx, g.reads, g.class.at)
		return false, err
	}
	g.asked = 0
	for previous := 0; g.answered+g.asked < len(g.ops) && previous < previousOps; g.asked++ {
		if g.writes[g.answered+g.asked].Previous != nil {
			previous++
		}
	}
	g.budget.Reset(readBytes)
	g.writes[g.answered].Stages = stages
	return false, s.store.Write(ctx, g.writes[g.answered:][:g.asked])
}

// ask prepares the lookups of the next n operations, the first of which tells where
// their time goes.
func (g *group) ask(n int, stages *trace.Stages) {
	g.asked, g.lookups, g.reads = n, slices.Grow(g.lookups[:0], n)[:n], g.reads[:0]
	for i, op := range g.ops[g.answered:][:n] {
		l := &g.lookups[i]
		*l = kv.Lookup{Key: op.Key, Budget: &g.budget, Value: l.Value[:0]}
		g.reads = append(g.reads, l)
	}
	g.lookups[0].Stages = stages
}

// readNewest has the store answer the lookups: within the turn those that memory
// has, without it all others.
func (g *group) readNewest(ctx context.Context) error {
	store, reads := g.pipeline.server.store, g.reads
	if g.turn.kept() {
		g.budget.ResetExact(turnBytes)
		left, err := store.LookupCached(reads)
		if err != nil || len(left) == 0 {
			return err
		}
		g.time.leave()
		reads = left
		reads[0].Stages = g.time.enter()
		g.turn.pass()
	}
	g.budget.Reset(readBytes)
	return store.Lookup(ctx, reads)
}

// readTogether has the store answer all reads at one version, within the limits of
// BatchGet.
func (g *group) readTogether(ctx context.Context, stages *trace.Stages) error {
	s := g.pipeline.server
	if len(g.ops) > s.limits.BatchOps {
		return tooLarge("%d keys, limit is %d", len(g.ops), s.limits.BatchOps)
	}
	limit := s.batchGetBytes()
	err := s.readWithin(ctx, &g.budget, limit, func() error {
		clear(g.lookups)
		g.ask(len(g.ops), stages)
		_, err := s.store.LookupAt(ctx, g.reads, 0)
		return err
	})
	if err != nil {
		return err
	}
	if g.budget.Spent() {
		return tooLarge("the answer has more than %d bytes; ask for fewer keys", limit)
	}
	return nil
}

// answerReads answers what the last call has read. What exceeded the budget comes
// first in the next call.
func (g *group) answerReads() {
	asked := g.ops[g.answered:][:g.asked]
	s := g.pipeline.server
	succeeded, absent, left := 0, 0, 0
	for i, op := range asked {
		switch l := &g.lookups[i]; {
		case errors.Is(l.Err, kv.ErrBudgetSpent):
			asked[left] = op
			left++
		case l.Err != nil:
			g.fail(op, s.failure(pipelineGet, l.Err))
		case !l.Found:
			absent++
			g.add(notFound(l.ReadVersion).result(op.Tag))
		default:
			succeeded++
			g.add(frame.Result{
				Tag: op.Tag, Kind: frame.Get, Version: uint64(l.ReadVersion),
				Value: l.Value, ItemVersion: uint64(l.Version), TTLMillis: s.timeLeft(l.Expiry),
			})
			if cap(l.Value) > keptValue {
				l.Value = nil // the response has it
			}
		}
	}
	g.answered += len(asked) - left
	copy(g.ops[g.answered:], asked[:left])
	if left > 0 {
		g.turn.pass()
		g.flush() // before there are more
	}
	s.counters.request(pipelineGet, codes.OK, succeeded)
	s.counters.request(pipelineGet, codes.NotFound, absent)
}

// answerWrites answers what the last call has written. It reports whether the
// store may still use memory of the frame.
func (g *group) answerWrites() (held bool) {
	s := g.pipeline.server
	puts, deletes, left := 0, 0, 0
	asked, written := g.ops[g.answered:][:g.asked], g.writes[g.answered:][:g.asked]
	for i, op := range asked {
		w := written[i]
		if errors.Is(w.Err, kv.ErrBudgetSpent) { // nothing was done
			asked[left], written[left] = op, w
			left++
			continue
		}
		if w.Err != nil {
			held = held || errors.Is(w.Err, kv.ErrUncertain)
			g.fail(op, s.failure(methodOfKind(op.Kind), w.Err))
			continue
		}
		if op.Kind == frame.Put {
			puts++
		} else {
			deletes++
		}
		r := frame.Result{Tag: op.Tag, Kind: op.Kind, Version: uint64(w.Version), Deduplicated: w.Deduplicated}
		if hadPrevious(w) {
			r.HasPrevious, r.Value, r.ItemVersion = true, w.Previous.Value, uint64(w.Previous.Version)
			r.TTLMillis = s.timeLeft(w.Previous.Expiry)
			w.Previous.Value = nil // the response has it
		}
		g.add(r)
	}
	g.answered += g.asked - left
	copy(g.ops[g.answered:], asked[:left])
	copy(g.writes[g.answered:], written[:left])
	if g.answered < len(g.ops) {
		g.flush() // before there are more
	}
	s.counters.request(pipelinePut, codes.OK, puts)
	s.counters.request(pipelineDelete, codes.OK, deletes)
	return held
}

// failAll answers every operation that is not answered yet with the error of the
// whole call.
func (g *group) failAll(err error) {
	why := g.pipeline.server.failure(methodOfKind(g.ops[0].Kind), err)
	for _, op := range g.ops[g.answered:] {
		g.fail(op, why)
	}
	g.answered, g.failed = len(g.ops), why.code
}

func (g *group) fail(op *frame.Op, why *failure) {
	g.pipeline.server.counters.request(methodOfKind(op.Kind), why.code, 1)
	g.add(why.result(op.Tag))
}

// add puts an answer into the response, and sends that when it is large.
func (g *group) add(r frame.Result) {
	g.response.Results = append(g.response.Results, r)
	if len(r.Value) > 0 {
		g.lent += g.budget.Part(len(r.Value))
	}
	if g.bytes += len(r.Value); g.bytes >= responseBytes {
		g.flush()
	}
}

// flush sends what has been answered.
func (g *group) flush() {
	if len(g.response.Results) > 0 {
		g.response.Compact, g.response.ID = g.request.Compact, g.request.ID
		if g.request.Timed {
			g.response.Timings = g.time.appendTo(g.response.Timings[:0], time.Since(g.time.begun))
		}
		if g.lent > 0 {
			g.response.Lender, g.response.Lent = g.pipeline.server.memory, g.lent
			g.lent = 0
		}
		g.pipeline.send(&g.response, g.turn)
		g.response.Release()
		g.bytes = 0
	}
}

// keptValue bounds the memory that a pooled group keeps for each value. Guessed.
const keptValue = 1 << 10

// keepValues forgets the lookups, but for the memory of values that are not large,
// which those of the next frame use.
func (g *group) keepValues() {
	all := g.lookups[:cap(g.lookups)]
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
func (g *group) finish() {
	m := methodOfKind(g.ops[0].Kind)
	g.pipeline.server.finish(g.pipeline.ctx, m, g.failed, &g.time, func() (l load) {
		for _, op := range g.ops {
			l.add(op.Key, len(op.Value))
		}
		return l
	})
}

// reset forgets the operations and keeps the memory.
func (g *group) reset() {
	clear(g.ops)
	g.keepValues()
	clear(g.reads)
	clear(g.changes)
	clear(g.looks)
	clear(g.writes)
	*g = group{
		ops: g.ops[:0], lookups: g.lookups[:0], reads: g.reads[:0],
		changes: g.changes[:0], looks: g.looks[:0], writes: g.writes[:0], response: g.response,
	}
}
