package kvd

import (
	"context"
	"errors"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// CallInfo describes a call that has ended: see [WithHook].
type CallInfo struct {
	// Op is the call, as in Error.Op: "get", "put", "delete", "get many", "scan", "apply",
	// "delete range", "execute", "commit", "snapshot", "keep snapshot", "ping", and so on.
	Op string
	// Keys is the number of keys that were read or written, including those of guards; for
	// a scan the number of items that the loop got.
	Keys int
	// Bytes is the size of the keys and values that were sent and received.
	Bytes int
	// Time is the duration of the call; for a scan it includes the body of the loop.
	Time time.Duration
	// Attempts is the number of tries. It is 0 if that is unknown: for scans, snapshots and
	// administrative calls that succeeded.
	Attempts int
	// Timings says where the time went, as with Timed. It is zero for calls that do not take
	// Timed.
	Timings Timings
	// Err is the error that the call returned.
	Err error
}

// WithHook calls hook when a call ends, for metrics and traces. The hook runs on the caller's
// goroutine before the call returns, so it should be fast. Concurrent calls run it concurrently.
// It must not close the client.
//
// Each operation of a Pipeline is reported as a call, whose Time is that of all operations that
// were sent with it. A transaction is reported as the calls that it makes. Not reported are:
// calls that the client refuses before it sends anything (ErrInvalid, ErrClosed, or a context
// that has already ended), reads served from a transaction's own writes, and the release of
// snapshots.
//
// With a hook every call asks for timings, which adds about thirty bytes to each answer frame.
// Without a hook there is no cost.
func WithHook(hook func(CallInfo)) Option { return func(c *config) { c.hook = hook } }

// hooked is a backend that reports what another one does.
type hooked struct {
	backend.Backend
	hook func(CallInfo)
}

// withHook returns b itself if there is no hook.
func withHook(b backend.Backend, hook func(CallInfo)) backend.Backend {
	if hook == nil {
		return b
	}
	return &hooked{b, hook}
}

// hookedCall is a call in flight.
type hookedCall struct {
	CallInfo
	begun   time.Time
	timings *backend.Timings // the caller's, or those of CallInfo
}

// begin begins a call. t is where the caller wants its timings; nil if it does not.
func (h *hooked) begin(op string, t *backend.Timings) *hookedCall {
	c := &hookedCall{begun: time.Now(), timings: t}
	c.Op = op
	if t == nil {
		c.timings = (*backend.Timings)(&c.Timings)
	}
	return c
}

func (c *hookedCall) add(keys int, slices ...[]byte) {
	c.Keys += keys
	for _, s := range slices {
		c.Bytes += len(s)
	}
}

func (c *hookedCall) addMutations(mutations []backend.Mutation) {
	for i := range mutations {
		c.add(1, mutations[i].Key, mutations[i].Value, mutations[i].Condition.Operand())
	}
}

// end reports a call that ended with err, which it returns.
func (h *hooked) end(c *hookedCall, err error) error {
	c.Time = time.Since(c.begun)
	c.Timings = Timings(*c.timings)
	c.Attempts, c.Err = c.Timings.Attempts, failed(c.Op, err)
	if e, ok := errors.AsType[*Error](c.Err); ok {
		c.Attempts = e.Attempts
	}
	h.hook(c.CallInfo)
	return err
}

func nameOf(k backend.Kind) string {
	switch k {
	case backend.Put:
		return "put"
	case backend.Delete:
		return "delete"
	case backend.DeleteRange:
		return "delete range"
	}
	return "get"
}

func (c *hookedCall) addOperation(op *backend.Op, a *backend.Answer) {
	c.add(1, op.Key, op.Value, op.Condition.Operand(), a.Value.Bytes)
}

// Get implements backend.Backend.
func (h *hooked) Get(ctx context.Context, key []byte, at backend.ReadVersion, t *backend.Timings) (backend.Value, error) {
	c := h.begin("get", t)
	v, err := h.Backend.Get(ctx, key, at, c.timings)
	c.add(1, key, v.Bytes)
	return v, h.end(c, err)
}

// GetFirst implements backend.Backend. It is not reported if nothing was read.
func (h *hooked) GetFirst(ctx context.Context, key []byte, t *backend.Timings) (backend.Answer, error) {
	c := h.begin("get", t)
	a, err := h.Backend.GetFirst(ctx, key, c.timings)
	if err == nil && a.Epoch == 0 {
		return a, nil
	}
	c.add(1, key, a.Value.Bytes)
	return a, h.end(c, err)
}

// Operate implements backend.Backend.
func (h *hooked) Operate(ctx context.Context, op backend.Op, t *backend.Timings) (backend.Answer, error) {
	c := h.begin(nameOf(op.Kind), t)
	a, err := h.Backend.Operate(ctx, op, c.timings)
	c.addOperation(&op, &a)
	return a, h.end(c, err)
}

// OperateAll implements backend.Backend.
func (h *hooked) OperateAll(ctx context.Context, ops []*backend.Operation) {
	calls := make([]*hookedCall, len(ops))
	for i, o := range ops {
		calls[i] = h.begin(nameOf(o.Op.Kind), o.Timings)
		o.Timings = calls[i].timings
	}
	h.Backend.OperateAll(ctx, ops)
	for i, o := range ops {
		calls[i].addOperation(&o.Op, &o.Answer)
		o.Err = h.end(calls[i], o.Err)
	}
}

// GetMany implements backend.Backend.
func (h *hooked) GetMany(ctx context.Context, keys [][]byte, at backend.ReadVersion, t *backend.Timings, found func(int, backend.Value, bool)) error {
	c := h.begin("get many", t)
	c.add(len(keys), keys...)
	return h.end(c, h.Backend.GetMany(ctx, keys, at, c.timings, func(i int, v backend.Value, ok bool) {
		c.add(0, v.Bytes)
		found(i, v, ok)
	}))
}

// Scan implements backend.Backend.
func (h *hooked) Scan(ctx context.Context, s *backend.Scan, yield func(backend.Item) bool) error {
	c := h.begin("scan", nil)
	return h.end(c, h.Backend.Scan(ctx, s, func(item backend.Item) bool {
		c.add(1, item.Key, item.Value)
		return yield(item)
	}))
}

// Apply implements backend.Backend.
func (h *hooked) Apply(ctx context.Context, writes []backend.Mutation, o backend.WriteOptions) (uint64, error) {
	op := "apply"
	if len(writes) == 1 && writes[0].Kind == backend.DeleteRange {
		op = nameOf(backend.DeleteRange)
	}
	c := h.begin(op, o.Timings)
	o.Timings = c.timings
	c.addMutations(writes)
	version, err := h.Backend.Apply(ctx, writes, o)
	return version, h.end(c, err)
}

// Commit implements backend.Backend.
func (h *hooked) Commit(ctx context.Context, t *backend.Transaction, o backend.WriteOptions) (uint64, error) {
	c := h.begin("commit", o.Timings)
	o.Timings = c.timings
	c.addMutations(t.Writes)
	version, err := h.Backend.Commit(ctx, t, o)
	return version, h.end(c, err)
}

// Execute implements backend.Backend.
func (h *hooked) Execute(ctx context.Context, e *backend.Execution, o backend.WriteOptions) (backend.Executed, error) {
	c := h.begin("execute", o.Timings)
	o.Timings = c.timings
	for i := range e.Guards {
		c.add(1, e.Guards[i].Key, e.Guards[i].Condition.Value)
	}
	c.addMutations(e.Then)
	c.addMutations(e.Else)
	done, err := h.Backend.Execute(ctx, e, o)
	return done, h.end(c, err)
}

// BeginSnapshot implements backend.Backend. It does not read the key, since a read is a call of its
// own to the hook.
func (h *hooked) BeginSnapshot(ctx context.Context, lease time.Duration, _ []byte) (backend.Snapshot, error) {
	c := h.begin("snapshot", nil)
	s, err := h.Backend.BeginSnapshot(ctx, lease, nil)
	return s, h.end(c, err)
}

// KeepSnapshot implements backend.Backend.
func (h *hooked) KeepSnapshot(ctx context.Context, id uint64, lease time.Duration) (time.Duration, error) {
	c := h.begin("keep snapshot", nil)
	granted, err := h.Backend.KeepSnapshot(ctx, id, lease)
	return granted, h.end(c, err)
}

// SlowRequests implements backend.Backend.
func (h *hooked) SlowRequests(ctx context.Context, limit int) (backend.SlowLog, error) {
	c := h.begin("slow requests", nil)
	l, err := h.Backend.SlowRequests(ctx, limit)
	return l, h.end(c, err)
}

// ClearSlowRequests implements backend.Backend.
func (h *hooked) ClearSlowRequests(ctx context.Context) error {
	c := h.begin("clear slow requests", nil)
	return h.end(c, h.Backend.ClearSlowRequests(ctx))
}

// SetSetting implements backend.Backend.
func (h *hooked) SetSetting(ctx context.Context, name, value string) (before, after string, err error) {
	c := h.begin("set setting", nil)
	before, after, err = h.Backend.SetSetting(ctx, name, value)
	return before, after, h.end(c, err)
}

// Cluster implements backend.Backend.
func (h *hooked) Cluster(ctx context.Context) (backend.Cluster, error) {
	c := h.begin("cluster", nil)
	cluster, err := h.Backend.Cluster(ctx)
	return cluster, h.end(c, err)
}

// TransferLeadership implements backend.Backend.
func (h *hooked) TransferLeadership(ctx context.Context, to uint64) (uint64, error) {
	c := h.begin("transfer leadership", nil)
	leader, err := h.Backend.TransferLeadership(ctx, to)
	return leader, h.end(c, err)
}

// AddNode implements backend.Backend.
func (h *hooked) AddNode(ctx context.Context, peer string, replaces uint64) (backend.AddedNode, error) {
	c := h.begin("add node", nil)
	added, err := h.Backend.AddNode(ctx, peer, replaces)
	return added, h.end(c, err)
}

// RemoveNode implements backend.Backend.
func (h *hooked) RemoveNode(ctx context.Context, node uint64) error {
	c := h.begin("remove node", nil)
	return h.end(c, h.Backend.RemoveNode(ctx, node))
}

// MoveNode implements backend.Backend.
func (h *hooked) MoveNode(ctx context.Context, node uint64, peer string) error {
	c := h.begin("move node", nil)
	return h.end(c, h.Backend.MoveNode(ctx, node, peer))
}

// Ping implements backend.Backend.
func (h *hooked) Ping(ctx context.Context) error {
	c := h.begin("ping", nil)
	return h.end(c, h.Backend.Ping(ctx))
}
