package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// named is a write that happened and can be sent again.
type named struct {
	id      kv.RequestID
	version kv.SeqNum
	again   func(kv.RequestID) (kv.SeqNum, error)
}

// wrote takes in a write that was acknowledged.
func (m *machine) wrote(t require.TestingT, d kv.Durability, version kv.SeqNum, ops ...kv.Op) {
	require.Greater(t, version, m.seen, "versions grow")
	m.seen = version
	if d == kv.DurabilityDefault {
		d = m.opts.Durability
	}
	m.weakest = min(m.weakest, d)
	m.want.apply(version, ops)
	m.done = append(m.done, done{version, ops})
}

// name remembers a write that happened, if it has a name.
func (m *machine) name(o kv.RequestID, version kv.SeqNum, again func(kv.RequestID) (kv.SeqNum, error)) {
	if o.Named() {
		m.named = append(m.named, &named{o, version, again})
	}
}

// mayForget reports whether the store may be unable to tell if a write was applied
// whose sender had seen the version: that was before the log begins, or too many
// names came since.
func (m *machine) mayForget(known kv.SeqNum) bool {
	since := 0
	for _, n := range m.named {
		if n.version > known {
			since++
		}
	}
	return known+1 < m.e.firstSeq || since > m.e.opts.requestIDs
}

// uncertain reports whether an error says that the store forgot, as it may. The
// write did not happen then.
func (m *machine) uncertain(t require.TestingT, o kv.RequestID, err error) bool {
	if !errors.Is(err, kv.ErrUncertain) {
		return false
	}
	require.True(t, o.Named() && m.mayForget(o.KnownVersion),
		"a write of the name %+v cannot be forgotten; the log begins at %d", o, m.e.firstSeq)
	return true
}

// drawRequestID draws no name most of the time, or a new one. Some say that they had
// been sent before, and were not.
func (m *machine) drawRequestID(t *rapid.T) kv.RequestID {
	if rapid.IntRange(0, 2).Draw(t, "named") > 0 {
		return kv.RequestID{}
	}
	m.names++
	return kv.RequestID{
		ClientID: rapid.Uint64Range(1, 2).Draw(t, "client"), Sequence: m.names,
		Retried: rapid.Bool().Draw(t, "retried"), KnownVersion: m.seen,
	}
}

// drawPut draws a put, of a key that expires some day, or long ago, now and then.
func (m *machine) drawPut(t *rapid.T) kv.Op {
	op := kv.Op{Kind: kv.KindPut, Key: []byte(modelKey.Draw(t, "key")), Value: []byte(modelValue.Draw(t, "value"))}
	switch rapid.IntRange(0, 7).Draw(t, "expires") {
	case 0:
		ttl := rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 5 * time.Second, time.Minute}).Draw(t, "ttl")
		op.Expiry = m.e.Now() + uint64(ttl.Milliseconds())
	case 1:
		op.Expiry = rapid.Uint64Range(1, 2).Draw(t, "expiry")
	}
	return op
}

func (m *machine) drawOp(t *rapid.T) kv.Op {
	switch rapid.IntRange(0, 5).Draw(t, "operation") {
	case 0, 1:
		return kv.Op{Kind: kv.KindDelete, Key: []byte(modelKey.Draw(t, "key"))}
	case 2:
		return drawDeletedRange(t)
	}
	return m.drawPut(t)
}

// drawDeletedRange draws a range delete, of which one in eight has no end.
func drawDeletedRange(t *rapid.T) kv.Op {
	from, to := modelKey.Draw(t, "from"), modelKey.Draw(t, "to")
	if from > to {
		from, to = to, from
	}
	if from == to {
		to += "\x00"
	}
	if rapid.IntRange(0, 7).Draw(t, "unbounded") == 0 {
		to = ""
	}
	return kv.Op{Kind: kv.KindRangeDelete, Key: []byte(from), Value: []byte(to)}
}

func (m *machine) drawOps(t *rapid.T) []kv.Op {
	var ops []kv.Op
	for range rapid.IntRange(1, 8).Draw(t, "operations") {
		ops = append(ops, m.drawOp(t))
	}
	return ops
}

// drawCondition draws a condition that often holds of what a state has.
func drawCondition(t *rapid.T, holds view, key []byte) kv.Condition {
	c := kv.Condition{Kind: rapid.SampledFrom([]kv.ConditionKind{
		kv.Unconditional, kv.IfAbsent, kv.IfPresent, kv.IfVersion, kv.IfValue,
	}).Draw(t, "condition")}
	have := holds[string(key)]
	right := rapid.IntRange(0, 3).Draw(t, "right") > 0
	switch {
	case c.Kind == kv.IfVersion && right:
		c.Version = max(have.version, 1)
	case c.Kind == kv.IfVersion:
		c.Version = have.version + 1
	case c.Kind == kv.IfValue && right:
		c.Value = []byte(have.value)
	case c.Kind == kv.IfValue:
		c.Value = []byte(modelValue.Draw(t, "value"))
	}
	return c
}

func drawGuards(t *rapid.T, holds view, most int) []kv.Guard {
	var guards []kv.Guard
	for range rapid.IntRange(0, most).Draw(t, "guards") {
		key := []byte(modelKey.Draw(t, "key"))
		guards = append(guards, kv.Guard{Key: key, Condition: drawCondition(t, holds, key)})
	}
	return guards
}

// lost returns the first guard that does not hold.
func (v view) lost(guards []kv.Guard) *kv.Guard {
	for i := range guards {
		found := v.lookup(guards[i].Key)
		if !guards[i].Holds(&found) {
			return &guards[i]
		}
	}
	return nil
}

// expired reports whether a key that a guard has found in v has expired by now.
func (v view) expired(guards []kv.Guard, now uint64) bool {
	return slices.ContainsFunc(guards, func(g kv.Guard) bool { return v[string(g.Key)].expired(now) })
}

// requireLost checks the error of a condition that did not hold.
func (v view) requireLost(t require.TestingT, g *kv.Guard, err error) {
	var lost *kv.ConditionError
	require.ErrorAs(t, err, &lost, "%q should be %s", g.Key, &g.Condition)
	found := v.lookup(g.Key)
	require.Equal(t, kv.ConditionError{Key: g.Key, Wanted: g.String(), Found: found.Found, Version: found.Version}, *lost)
}

// batchOf returns a batch that may be changed.
func batchOf(ops []kv.Op, guards ...kv.Guard) *kv.WriteBatch {
	var b kv.WriteBatch
	for _, op := range ops {
		b.Add(op)
	}
	for _, g := range guards {
		b.Require(g)
	}
	return &b
}

func (m *machine) Put(t *rapid.T) {
	key, value, d := modelKey.Draw(t, "key"), modelValue.Draw(t, "value"), modelDurability.Draw(t, "durability")
	version, err := m.e.Put(context.Background(), []byte(key), []byte(value), kv.WriteOptions{Durability: d})
	require.NoError(t, err)
	m.wrote(t, d, version, kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)})
}

func (m *machine) Delete(t *rapid.T) {
	op := kv.Op{Kind: kv.KindDelete, Key: []byte(modelKey.Draw(t, "key"))}
	version, err := m.e.Delete(context.Background(), op.Key, kv.WriteOptions{})
	require.NoError(t, err)
	m.wrote(t, kv.DurabilityDefault, version, op)
}

func (m *machine) DeleteRange(t *rapid.T) {
	op, d := drawDeletedRange(t), modelDurability.Draw(t, "durability")
	version, err := m.e.DeleteRange(context.Background(), kv.Range{Start: op.Key, End: op.Value}, kv.WriteOptions{Durability: d})
	require.NoError(t, err)
	m.wrote(t, d, version, op)
}

// Batch applies a batch, with conditions now and then.
func (m *machine) Batch(t *rapid.T) {
	holds := m.now()
	ops, guards := m.drawOps(t), drawGuards(t, holds, 2)
	o := kv.WriteOptions{Durability: modelDurability.Draw(t, "durability"), RequestID: m.drawRequestID(t)}
	apply := func(id kv.RequestID) (kv.SeqNum, error) {
		return m.e.Apply(context.Background(), batchOf(ops, guards...), kv.WriteOptions{Durability: o.Durability, RequestID: id})
	}
	version, err := apply(o.RequestID)
	if m.uncertain(t, o.RequestID, err) {
		return
	}
	if lost := holds.lost(guards); lost != nil {
		holds.requireLost(t, lost, err)
		return
	}
	require.NoError(t, err)
	m.wrote(t, o.Durability, version, ops...)
	m.name(o.RequestID, version, apply)
}

// Writes does independent writes in one call, with conditions and without. Those
// on one key without conditions keep their order; the others come anywhere.
func (m *machine) Writes(t *rapid.T) {
	holds := m.now()
	var writes []*kv.Write
	for range rapid.IntRange(1, 12).Draw(t, "writes") {
		w := &kv.Write{Durability: modelDurability.Draw(t, "durability"), RequestID: m.drawRequestID(t)}
		if w.Op = m.drawPut(t); rapid.IntRange(0, 5).Draw(t, "delete") == 0 {
			w.Op = kv.Op{Kind: kv.KindDelete, Key: w.Op.Key}
		}
		if rapid.IntRange(0, 2).Draw(t, "conditional") == 0 {
			c := drawCondition(t, holds, w.Op.Key)
			w.If = &c
		}
		if rapid.IntRange(0, 4).Draw(t, "previous") == 0 {
			w.Previous = &kv.Lookup{}
		}
		writes = append(writes, w)
	}
	require.NoError(t, m.e.Write(context.Background(), writes))
	newest := map[string]kv.SeqNum{}
	for _, w := range writes {
		if !conditional(w) && w.Err == nil {
			require.Greater(t, w.Version, newest[string(w.Op.Key)], "writes of one key keep their order")
			newest[string(w.Op.Key)] = w.Version
		}
	}
	m.judgeWrites(t, writes, holds)
}

// judgeWrites takes in the writes of one call, in the order that the store chose.
func (m *machine) judgeWrites(t *rapid.T, writes []*kv.Write, holds view) {
	slices.SortStableFunc(writes, func(a, b *kv.Write) int { return cmp.Compare(a.Version, b.Version) })
	passed := map[string][]kv.Lookup{} // by key: what it held, one after the other
	for _, w := range writes {
		if passed[string(w.Op.Key)] == nil {
			passed[string(w.Op.Key)] = []kv.Lookup{holds.lookup(w.Op.Key)}
		}
	}
	for _, w := range writes {
		if w.Err != nil {
			continue
		}
		require.False(t, w.Deduplicated)
		states := passed[string(w.Op.Key)]
		before := &states[len(states)-1]
		require.True(t, w.If == nil || w.If.Holds(before), "%q should be %s, is %+v", w.Op.Key, w.If, before)
		require.True(t, w.Previous == nil || sameAnswer(w.Previous, before), "previous is %+v, was %+v", w.Previous, before)
		m.wrote(t, w.Durability, w.Version, w.Op)
		passed[string(w.Op.Key)] = append(states, m.now().lookup(w.Op.Key))
		m.name(w.RequestID, w.Version, func(id kv.RequestID) (kv.SeqNum, error) {
			again := &kv.Write{Op: w.Op, Durability: w.Durability, RequestID: id, If: w.If}
			err := errors.Join(m.e.Write(context.Background(), []*kv.Write{again}), again.Err)
			if err == nil && !again.Deduplicated {
				err = errors.New("not known to be a duplicate")
			}
			return again.Version, err
		})
	}
	for _, w := range writes {
		if w.Err == nil || m.uncertain(t, w.RequestID, w.Err) {
			continue
		}
		require.NotNil(t, w.If, "%v", w.Err)
		var lost *kv.ConditionError
		require.ErrorAs(t, w.Err, &lost)
		require.True(t, slices.ContainsFunc(passed[string(w.Op.Key)], func(l kv.Lookup) bool {
			return !w.If.Holds(&l) && lost.Found == l.Found && lost.Version == l.Version &&
				(w.Previous == nil || sameAnswer(w.Previous, &l))
		}), "%v, but the key went through %+v", lost, passed[string(w.Op.Key)])
	}
}

func sameAnswer(a, b *kv.Lookup) bool {
	return a.Found == b.Found && bytes.Equal(a.Value, b.Value) && a.Version == b.Version && a.Expiry == b.Expiry
}

// Execute chooses one of two batches by what keys hold.
func (m *machine) Execute(t *rapid.T) {
	holds := m.now()
	guards := drawGuards(t, holds, 3)
	var branches [2][]kv.Op
	for i := range branches {
		if rapid.IntRange(0, 3).Draw(t, "empty") > 0 {
			branches[i] = m.drawOps(t)
		}
	}
	o := kv.WriteOptions{Durability: modelDurability.Draw(t, "durability"), RequestID: m.drawRequestID(t)}
	execute := func(id kv.RequestID) (bool, kv.SeqNum, error) {
		return m.e.Execute(context.Background(), guards, batchOf(branches[1]), batchOf(branches[0]), kv.WriteOptions{Durability: o.Durability, RequestID: id})
	}
	succeeded, at, err := execute(o.RequestID)
	if m.uncertain(t, o.RequestID, err) {
		return
	}
	require.NoError(t, err)
	require.Equal(t, holds.lost(guards) == nil, succeeded)
	chosen := branches[0]
	if succeeded {
		chosen = branches[1]
	}
	if len(chosen) == 0 {
		m.saw(t, at)
		return
	}
	m.wrote(t, o.Durability, at, chosen...)
	m.name(o.RequestID, at, func(id kv.RequestID) (kv.SeqNum, error) {
		again, at, err := execute(id)
		if err == nil && again != succeeded {
			err = errors.New("now the other branch was chosen")
		}
		return at, err
	})
}

// Commit ends a transaction that read something at a version, one of a snapshot or
// any other that there was.
func (m *machine) Commit(t *rapid.T) {
	tx := kv.Transaction{}
	for range rapid.IntRange(0, 3).Draw(t, "keys") {
		tx.Keys = append(tx.Keys, []byte(modelKey.Draw(t, "key")))
	}
	for range rapid.IntRange(0, 2).Draw(t, "ranges") {
		tx.Ranges = append(tx.Ranges, modelRange.Draw(t, "range"))
	}
	holds := m.now()
	switch n := rapid.IntRange(0, 3).Draw(t, "read at"); {
	case n == 0 && len(m.done) > 0:
		tx.ReadVersion = m.done[rapid.IntRange(0, len(m.done)-1).Draw(t, "write")].version
	case n <= 2 && len(m.snapshots) > 0:
		tx.ReadVersion = m.drawSnapshot(t).Version
	case m.seen > 0 && len(tx.Keys)+len(tx.Ranges) > 0:
		tx.ReadVersion = m.seen
	default:
		tx.Keys, tx.Ranges = nil, nil
	}
	for _, s := range m.snapshots {
		if s.Version == tx.ReadVersion && s.live() {
			holds = s.holds // conditions are judged by what it read
		}
	}
	ops, guards := m.drawOps(t), drawGuards(t, holds, 2)
	o := kv.WriteOptions{Durability: modelDurability.Draw(t, "durability"), RequestID: m.drawRequestID(t)}
	commit := func(id kv.RequestID) (kv.SeqNum, error) {
		again := tx
		again.Batch = batchOf(ops, guards...)
		return m.e.Commit(context.Background(), &again, kv.WriteOptions{Durability: o.Durability, RequestID: id})
	}
	lived := tx.ReadVersion == 0 || m.live(tx.ReadVersion)
	version, err := commit(o.RequestID)
	if m.uncertain(t, o.RequestID, err) {
		return
	}
	if errors.Is(err, kv.ErrVersionGone) {
		require.False(t, tx.ReadVersion == 0 || m.live(tx.ReadVersion), "version %d is under lease", tx.ReadVersion)
		return
	}
	require.True(t, lived || len(guards) == 0, "conditions cannot be judged at version %d, which is gone", tx.ReadVersion)
	if lost := holds.lost(guards); lost != nil {
		holds.requireLost(t, lost, err)
		return
	}
	if tx.ReadVersion != 0 {
		for i := range guards {
			tx.Keys = append(tx.Keys, guards[i].Key)
		}
		rival, expired := m.rival(&tx), holds.expired(guards, m.e.Now())
		if rival != 0 || expired {
			var conflict *kv.ConflictError
			require.ErrorAs(t, err, &conflict, "version %d wrote what was read; a key of a guard has expired: %t", rival, expired)
			// At the read version itself, if a key of a guard has expired.
			require.True(t, conflict.Version >= tx.ReadVersion && conflict.Version <= m.seen, "%+v", conflict)
			return
		}
	}
	require.NoError(t, err)
	m.wrote(t, o.Durability, version, ops...)
	m.name(o.RequestID, version, commit)
}

// rival returns the first write since its read version of what a transaction read,
// or 0.
func (m *machine) rival(tx *kv.Transaction) kv.SeqNum {
	for _, d := range m.done {
		if d.version > tx.ReadVersion && slices.ContainsFunc(d.ops, func(op kv.Op) bool { return touches(&op, tx) }) {
			return d.version
		}
	}
	return 0
}

// touches reports whether an operation writes what a transaction read. A range
// delete writes every key of its range, whether it was there or not.
func touches(op *kv.Op, tx *kv.Transaction) bool {
	span := kv.Range{Start: op.Key, End: op.Value}
	deletes := op.Kind == kv.KindRangeDelete
	return slices.ContainsFunc(tx.Keys, func(key []byte) bool {
		return bytes.Equal(op.Key, key) && !deletes || deletes && span.Contains(key)
	}) || slices.ContainsFunc(tx.Ranges, func(r kv.Range) bool {
		return r.Contains(op.Key) || deletes && span.Contains(r.Start)
	})
}

// SendAgain sends a write that happened once more. It must not happen again,
// restarts or not.
func (m *machine) SendAgain(t *rapid.T) {
	if len(m.named) == 0 {
		t.Skip("there is none")
	}
	n := m.named[rapid.IntRange(0, len(m.named)-1).Draw(t, "name")]
	id := n.id
	// The first attempt may come late. What was forgotten by an earlier opening is not told from a new
	// write: no attempt comes to another opening than the one that it was sent to.
	id.Retried = n.version < m.e.firstSeq || rapid.Bool().Draw(t, "retried")
	version, err := n.again(id)
	if m.uncertain(t, id, err) {
		return
	}
	require.NoError(t, err)
	require.Equal(t, n.version, version, "the answer is that of the first time")
}
