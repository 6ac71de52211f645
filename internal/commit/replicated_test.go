package commit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/partition/partitiontest"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// termLog is the log of one term of a replicated group as its leader sees it: entries are
// proposed, and a majority commits them or the term ends.
type termLog struct {
	mu        sync.Mutex
	next      kv.SeqNum
	limit     int // of uncommitted entries
	entries   []entry
	committed int
	room      []wal.Waker
	changed   chan struct{} // closed when committed grows or the term ends
	ended     error
}

func newTermLog(next kv.SeqNum, limit int) *termLog {
	return &termLog{next: next, limit: limit, changed: make(chan struct{})}
}

var (
	_ CallerLog     = (*termLog)(nil)
	_ partition.Log = (*termLog)(nil)
)

type entry struct {
	base    kv.SeqNum
	units   uint32
	payload []byte
	waker   wal.Waker
}

var errTermEnded = errors.New("another node leads")

func (l *termLog) Append(payload []byte, units uint32, _ kv.Durability, w wal.Waker, _ *trace.Batch) (kv.SeqNum, wal.Pos, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended != nil:
		return 0, 0, l.ended
	case len(l.entries)-l.committed >= l.limit:
		return 0, 0, wal.ErrNoRoomYet
	}
	e := entry{l.next, units, slices.Clone(payload), w}
	l.next += kv.SeqNum(units)
	l.entries = append(l.entries, e)
	return e.base, wal.Pos(len(l.entries)), nil
}

func (l *termLog) Flush()       {}
func (l *termLog) FlushOrSync() {}

func (l *termLog) Reached(kv.Durability) wal.Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	return wal.Pos(l.committed)
}

func (l *termLog) OnRoom(w wal.Waker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room = append(l.room, w)
}

// AwaitRoom implements CallerLog.
func (l *termLog) AwaitRoom(ctx context.Context) error {
	return l.await(ctx, func() bool { return l.ended != nil || len(l.entries)-l.committed < l.limit })
}

// End implements CallerLog.
func (l *termLog) End() wal.Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	return wal.Pos(len(l.entries))
}

// WaitSynced implements CallerLog. What is committed stays so after the term.
func (l *termLog) WaitSynced(ctx context.Context, pos wal.Pos) error {
	var failed error
	err := l.await(ctx, func() bool {
		done := wal.Pos(l.committed) >= pos
		if !done {
			failed = l.ended
		}
		return done || failed != nil
	})
	return errors.Join(err, failed)
}

// await returns once doneLocked holds.
func (l *termLog) await(ctx context.Context, doneLocked func() bool) error {
	for {
		l.mu.Lock()
		done, changed := doneLocked(), l.changed
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// changedLocked wakes the goroutines that await something.
func (l *termLog) changedLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *termLog) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// commit has a majority hold everything proposed so far, and returns it.
func (l *termLog) commit() []entry {
	l.mu.Lock()
	fresh, room := l.entries[l.committed:], l.room
	l.committed, l.room = len(l.entries), nil
	l.changedLocked()
	l.mu.Unlock()
	for _, e := range fresh {
		e.waker.Wake()
	}
	for _, w := range room {
		w.Wake()
	}
	return fresh
}

// end ends the term: what is not committed is lost.
func (l *termLog) end() {
	l.mu.Lock()
	l.ended = errTermEnded
	l.changedLocked()
	lost := l.entries[l.committed:]
	l.mu.Unlock()
	for _, e := range lost {
		e.waker.Wake()
	}
}

// A replicated log implements Log: a leader's coordinator acknowledges what is committed,
// followers apply the same records without a coordinator, and the next term has a
// coordinator of its own on the tree.
func TestAReplicatedLogImplementsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := partitiontest.NewWorld()
		newTree := func() *partition.Partition {
			o := world.Options(vfs.NewMem())
			require.NoError(t, partition.Create(o))
			p, err := partition.Open(o)
			require.NoError(t, err)
			return p
		}
		lead := func(p *partition.Partition, l *termLog, applied []entry) *Coordinator {
			c := New(Options{Orchestrator: NewOrchestrator(nil, new(Company)), Tree: p, Applied: world, Now: Clocked(world.Now), InflightBytes: 1 << 20, RequestIDs: NewRequestWindow(9)})
			for _, e := range applied {
				require.NoError(t, record.Decode(e.payload, func(op *record.Op) error {
					c.Remember(e.base, op)
					return nil
				}))
			}
			p.Attach(c)
			c.Start(l, 1, l.next-1)
			return c
		}
		put := func(c *Coordinator, key string, level kv.Durability, id kv.RequestID) (*kv.Write, *Call) {
			op := kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(key)}
			hash := keyhash.Sum(op.Key)
			id.Content = keyhash.ContentOne(&op, hash)
			w, call := &kv.Write{Op: op, Hash: hash, Durability: level, RequestID: id}, NewCall(1)
			Submit(t.Context(), []*WriteGroup{c.NewWriteGroup(call, []*kv.Write{w})})
			synctest.Wait()
			return w, call
		}
		found := func(p *partition.Partition, key string) bool {
			r := &kv.Lookup{Key: []byte(key), Hash: keyhash.Sum([]byte(key))}
			require.NoError(t, partitiontest.Lookup(t.Context(), p, r))
			return r.Found
		}

		leader, follower := newTree(), newTree()
		first := newTermLog(1, 2)
		c := lead(leader, first, nil)
		a, aCall := put(c, "a", kv.DurabilitySync, kv.RequestID{ClientID: 1, Sequence: 1})
		b, bCall := put(c, "b", kv.DurabilityMemory, kv.RequestID{})
		d, dCall := put(c, "d", kv.DurabilitySync, kv.RequestID{ClientID: 1, Sequence: 2})
		require.Len(t, first.entries, 2, "there is no room for the third")
		require.Empty(t, aCall.Done())
		require.Empty(t, bCall.Done(), "no durability is less than a majority")
		require.False(t, found(leader, "b"))

		applied := slices.Clone(first.commit())
		synctest.Wait()
		require.Len(t, aCall.Done(), 1)
		require.Len(t, bCall.Done(), 1)
		require.NoError(t, errors.Join(a.Err, b.Err))
		require.Len(t, first.entries, 3, "now there is room")
		for _, e := range applied {
			follower.Insert(partition.Record{Base: e.base, Payload: e.payload})
			follower.Publish(e.base + kv.SeqNum(e.units) - 1)
		}
		for _, p := range []*partition.Partition{leader, follower} {
			require.True(t, found(p, "a") && found(p, "b"))
			require.False(t, found(p, "d"), "it is not committed")
		}

		first.end()
		synctest.Wait()
		require.Len(t, dCall.Done(), 1)
		require.ErrorIs(t, d.Err, kv.ErrUncertain)
		require.ErrorIs(t, d.Err, errTermEnded)
		c.Close()
		firstLeader := c

		// The follower leads the next term, which gives the lost number out again.
		second := newTermLog(applied[1].base+1, 2)
		c = lead(follower, second, applied)
		again, againCall := put(c, "a", kv.DurabilitySync, kv.RequestID{ClientID: 1, Sequence: 1, Retried: true})
		require.Len(t, againCall.Done(), 1)
		require.NoError(t, again.Err)
		require.True(t, again.Deduplicated)
		require.Equal(t, a.Version, again.Version)
		e, eCall := put(c, "e", kv.DurabilitySync, kv.RequestID{})
		for _, next := range second.commit() {
			leader.Insert(partition.Record{Base: next.base, Payload: next.payload})
			leader.Publish(next.base + kv.SeqNum(next.units) - 1)
		}
		synctest.Wait()
		require.Len(t, eCall.Done(), 1)
		require.NoError(t, e.Err)
		for _, p := range []*partition.Partition{leader, follower} {
			require.True(t, found(p, "e"))
			require.False(t, found(p, "d"))
		}
		c.Close()

		// The first leader leads again, without a look at the log: it knows the requests that
		// were applied, and not the one that was lost with its first term.
		third := newTermLog(second.next, 2)
		next := New(Options{Orchestrator: NewOrchestrator(nil, new(Company)), Tree: leader, Applied: world, Now: Clocked(world.Now), InflightBytes: 1 << 20, RequestIDs: NewRequestWindow(9)})
		next.Inherit(firstLeader)
		leader.Attach(next)
		next.Start(third, 1, third.next-1)
		again, againCall = put(next, "a", kv.DurabilitySync, kv.RequestID{ClientID: 1, Sequence: 1, Retried: true})
		require.Len(t, againCall.Done(), 1)
		require.True(t, again.Deduplicated)
		require.Equal(t, a.Version, again.Version)
		d, dCall = put(next, "d", kv.DurabilitySync, kv.RequestID{ClientID: 1, Sequence: 2, Retried: true})
		third.commit()
		synctest.Wait()
		require.Len(t, dCall.Done(), 1)
		require.NoError(t, d.Err)
		require.False(t, d.Deduplicated, "its first attempt was not committed")
		require.True(t, found(leader, "d"))
		next.Close()
		require.NoError(t, errors.Join(leader.Close(), follower.Close()))
	})
}

// Callers and flushes wait for a replicated log as they do for a node's own: for room, for
// the majority, and for the end of the term.
func TestCallersWaitForAReplicatedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTermLog(1, 2)
		levels := []kv.Durability{kv.DurabilityMemory, kv.DurabilityBuffered, kv.DurabilitySync}
		start := func(call func() error) chan error {
			done := make(chan error, 1)
			go func() { done <- call() }()
			synctest.Wait()
			return done
		}
		appendEmpty := func(ctx context.Context) chan error {
			return start(func() error { _, err := AppendEmpty(ctx, l); return err })
		}
		awaitDurable := func(level kv.Durability) chan error {
			return start(func() error { return AwaitDurable(t.Context(), l, level) })
		}
		for _, level := range levels {
			require.NoError(t, <-awaitDurable(level), "there is nothing to wait for")
		}

		seq, err := AppendEmpty(t.Context(), l)
		require.NoError(t, err)
		require.EqualValues(t, 1, seq)
		require.NoError(t, <-appendEmpty(t.Context()))
		gaveUp := errors.New("gave up")
		ctx, giveUp := context.WithCancelCause(t.Context())
		impatient, third := appendEmpty(ctx), appendEmpty(t.Context())
		giveUp(gaveUp)
		require.ErrorIs(t, <-impatient, gaveUp)
		require.Empty(t, third, "there is no room")
		require.NoError(t, <-awaitDurable(kv.DurabilityMemory), "it asks for nothing")
		buffered, synced := awaitDurable(kv.DurabilityBuffered), awaitDurable(kv.DurabilitySync)
		require.Empty(t, buffered)
		require.Empty(t, synced)

		l.commit()
		require.NoError(t, <-third)
		require.NoError(t, <-buffered)
		require.NoError(t, <-synced)

		fourth := awaitDurable(kv.DurabilitySync)
		require.NoError(t, <-appendEmpty(t.Context()))
		fifth := appendEmpty(t.Context())
		l.end()
		require.ErrorIs(t, <-fifth, errTermEnded)
		err = <-fourth
		require.ErrorIs(t, err, errTermEnded)
		require.ErrorIs(t, err, kv.ErrUncertain)
		require.NoError(t, l.WaitSynced(t.Context(), 2), "that was committed before the term ended")
	})
}

// A partition flushes what a replicated log has committed, and nothing else.
func TestAFlushWaitsForAReplicatedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := partitiontest.NewWorld()
		o := world.Options(vfs.NewMem())
		require.NoError(t, partition.Create(o))
		p, err := partition.Open(o)
		require.NoError(t, err)
		l := newTermLog(1, 9)
		c := New(Options{Orchestrator: NewOrchestrator(nil, new(Company)), Tree: p, Applied: world, Now: Clocked(world.Now), InflightBytes: 1 << 20, RequestIDs: NewRequestWindow(9)})
		p.Attach(c)
		p.Start(l, 0)
		c.Start(l, 1, 0)

		op := kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("1")}
		w := &kv.Write{Op: op, Hash: keyhash.Sum(op.Key), Durability: kv.DurabilitySync}
		call := NewCall(1)
		Submit(t.Context(), []*WriteGroup{c.NewWriteGroup(call, []*kv.Write{w})})
		synctest.Wait()
		require.NoError(t, p.FlushAll(t.Context()), "nothing is acknowledged")
		require.Zero(t, p.Stats().Flushes)
		l.commit()
		synctest.Wait()
		require.Len(t, call.Done(), 1)
		require.NoError(t, w.Err)
		require.NoError(t, p.FlushAll(t.Context()))
		require.EqualValues(t, 1, p.Stats().Flushes)

		// An insert that is not committed, as a coordinator never makes.
		_, pos, err := l.Append([]byte("x"), 1, kv.DurabilitySync, silentWaker{}, nil)
		require.NoError(t, err)
		p.Insert(partition.Record{Base: 2, Payload: l.entries[0].payload, Pos: pos})
		p.Publish(2)
		flushed := make(chan error, 1)
		go func() { flushed <- p.FlushAll(t.Context()) }()
		c.Wake()
		synctest.Wait()
		require.Empty(t, flushed, "it waits for the majority")
		l.commit()
		require.NoError(t, <-flushed)
		require.EqualValues(t, 2, p.Stats().Flushes)
		c.Close()
		require.NoError(t, p.Close())
	})
}
