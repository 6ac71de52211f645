package commit

import (
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
	ended     error
}

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
			c := New(Options{Tree: p, Applied: world, Now: world.Now, InflightBytes: 1 << 20, RequestIDs: 9})
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
			require.NoError(t, p.Lookup(t.Context(), []*kv.Lookup{r}, nil))
			return r.Found
		}

		leader, follower := newTree(), newTree()
		first := &termLog{next: 1, limit: 2}
		c := lead(leader, first, nil)
		a, aCall := put(c, "a", kv.DurabilitySync, kv.RequestID{ClientID: 1, Sequence: 1})
		b, bCall := put(c, "b", kv.DurabilityMemory, kv.RequestID{})
		d, dCall := put(c, "d", kv.DurabilitySync, kv.RequestID{})
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

		// The follower leads the next term, which gives the lost number out again.
		second := &termLog{next: applied[1].base + 1, limit: 2}
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
		require.NoError(t, errors.Join(leader.Close(), follower.Close()))
	})
}
