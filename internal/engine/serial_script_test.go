package engine

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// txn is a transaction as a client of the engine holds it: reads at a snapshot,
// writes kept back until commit.
type txn struct {
	t        *testing.T
	e        *Engine
	snapshot kv.Snapshot
	kv.Transaction
}

func beginTxn(t *testing.T, e *Engine) *txn {
	s, err := e.BeginSnapshot(t.Context(), time.Minute)
	require.NoError(t, err)
	return &txn{t: t, e: e, snapshot: s, Transaction: kv.Transaction{ReadVersion: s.Version, Batch: new(kv.WriteBatch)}}
}

// get reads a key; an absent one is "".
func (x *txn) get(key string) string {
	l := kv.Lookup{Key: []byte(key)}
	_, err := x.e.LookupAt(x.t.Context(), []*kv.Lookup{&l}, x.snapshot.Version)
	require.NoError(x.t, err)
	require.NoError(x.t, l.Err)
	x.Keys = append(x.Keys, []byte(key))
	return string(l.Value)
}

// scan returns how many keys a range has.
func (x *txn) scan(start, end string) (count int) {
	r := kv.Range{Start: []byte(start), End: []byte(end)}
	items, _, err := engineStore{x.e}.Scan(x.t.Context(), r, kv.ScanOptions{At: x.snapshot.Version})
	require.NoError(x.t, err)
	x.Ranges = append(x.Ranges, r)
	return len(items)
}

func (x *txn) put(key, value string) { x.Batch.Put([]byte(key), []byte(value)) }

func (x *txn) commit() error {
	defer x.e.ReleaseSnapshot(x.snapshot.ID)
	_, err := x.e.Commit(x.t.Context(), &x.Transaction, memory)
	return err
}

// writeOp is a write from outside the transactions of a script.
type writeOp func(t *testing.T, e *Engine)

func putting(key, value string) writeOp {
	return func(t *testing.T, e *Engine) { put(t, e, key, value, memory) }
}

func deletingRange(start, end string) writeOp {
	return func(t *testing.T, e *Engine) {
		_, err := e.DeleteRange(context.Background(), kv.Range{Start: []byte(start), End: []byte(end)}, memory)
		require.NoError(t, err)
	}
}

// heldFlushes is a disk on which, once it is told to, flushes do not end.
type heldFlushes struct {
	disk    *faultfs.FS
	hold    atomic.Bool
	begun   chan string // directory of a partition whose flush is held
	release chan struct{}
}

func newHeldFlushes() *heldFlushes {
	h := &heldFlushes{begun: make(chan string, 64), release: make(chan struct{})}
	h.disk = faultfs.Wrap(vfs.NewMem(), faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind != faultfs.Sync || !faultfs.OnName("*.sst")(op) || !h.hold.Load() {
			return faultfs.Fault{}
		}
		return faultfs.Fault{Delay: func() {
			h.begun <- path.Dir(op.Name)
			<-h.release
		}}
	}))
	return h
}

// sealAll makes every memtable that holds something a sealed one, until the test
// ends. It waits for a flush of each, so none may be under way.
func sealAll(t *testing.T, e *Engine, h *heldFlushes) {
	h.hold.Store(true)
	var flushing sync.WaitGroup
	waiting := 0
	for _, p := range e.partitions {
		if _, ok := p.UnflushedFrom(); ok {
			waiting++
			flushing.Go(func() { assert.NoError(t, p.FlushAll(context.Background())) })
		}
	}
	for ; waiting > 0; waiting-- {
		<-h.begun
	}
	t.Cleanup(func() {
		close(h.release)
		flushing.Wait()
	})
}

// meanwhile runs a script with the conflicting write in each place in which it may be when
// a transaction is validated: the active memtable, a sealed one while the active one is
// empty, a table. pause moves what was written there.
func meanwhile(t *testing.T, script func(t *testing.T, e *Engine, pause func())) {
	stay := func(*testing.T, *Engine, *heldFlushes) {}
	flush := func(t *testing.T, e *Engine, _ *heldFlushes) { require.NoError(t, e.Flush(t.Context())) }
	for name, place := range map[string]struct {
		before, pause func(*testing.T, *Engine, *heldFlushes)
	}{
		"in memory":                  {stay, stay},
		"over tables":                {flush, stay},
		"rivals in sealed memtables": {flush, sealAll},
		"rivals in tables":           {flush, flush},
	} {
		t.Run(name, func(t *testing.T) {
			held := newHeldFlushes()
			o := small(held.disk)
			o.MemtableBytes = 4 << 20 // nothing is sealed, and flushed, unasked: see sealAll
			e := open(t, o)
			put(t, e, "a", "1", memory)
			put(t, e, "b", "1", memory)
			for i := range 8 {
				put(t, e, key(i), "old", memory)
			}
			place.before(t, e, held)
			script(t, e, func() { place.pause(t, e, held) })
		})
	}
}

func TestScriptLostUpdate(t *testing.T) {
	meanwhile(t, func(t *testing.T, e *Engine, pause func()) {
		first, second := beginTxn(t, e), beginTxn(t, e)
		require.Equal(t, "1", first.get("a"))
		require.Equal(t, "1", second.get("a"))
		first.put("a", "2")
		second.put("a", "2")
		require.NoError(t, first.commit())
		pause()
		require.ErrorIs(t, second.commit(), kv.ErrConflict)
		requireValue(t, e, "a", "2")
	})
}

// Two doctors are on call; each may go if the other stays (Cahill, Röhm and
// Fekete, SIGMOD 2008).
func TestScriptWriteSkew(t *testing.T) {
	meanwhile(t, func(t *testing.T, e *Engine, pause func()) {
		first, second := beginTxn(t, e), beginTxn(t, e)
		for _, x := range []*txn{first, second} {
			require.Equal(t, "1", x.get("a"))
			require.Equal(t, "1", x.get("b"))
		}
		first.put("a", "gone")
		second.put("b", "gone")
		require.NoError(t, first.commit())
		pause()
		require.ErrorIs(t, second.commit(), kv.ErrConflict)
		requireValue(t, e, "b", "1")
	})
}

func TestScriptPhantom(t *testing.T) {
	for name, rival := range map[string]writeOp{
		"insert":       putting(key(3)+"x", "new"),
		"update":       putting(key(3), "new"),
		"delete":       func(t *testing.T, e *Engine) { del(t, e, key(3), memory) },
		"range delete": deletingRange(key(1), key(4)),
		"range delete that begins before the range": deletingRange("a", key(3)),
		"range delete of nothing":                   deletingRange(key(3)+"x", key(3)+"y"),
		"batch": func(t *testing.T, e *Engine) {
			var b kv.WriteBatch
			b.Put([]byte(key(3)), nil)
			b.Put([]byte("z"), nil)
			_, err := e.Apply(t.Context(), &b, memory)
			require.NoError(t, err)
		},
		"transaction": func(t *testing.T, e *Engine) {
			x := beginTxn(t, e)
			x.get("b")
			x.put(key(3)+"x", "new")
			require.NoError(t, x.commit())
		},
	} {
		t.Run(name, func(t *testing.T) {
			meanwhile(t, func(t *testing.T, e *Engine, pause func()) {
				x := beginTxn(t, e)
				require.Equal(t, 4, x.scan(key(2), key(6)))
				x.put("count", "4")
				rival(t, e)
				pause()
				require.ErrorIs(t, x.commit(), kv.ErrConflict)
				requireAbsent(t, e, "count")
			})
		})
	}
}

// Keys outside the range do not conflict.
func TestScriptNoPhantom(t *testing.T) {
	meanwhile(t, func(t *testing.T, e *Engine, pause func()) {
		x := beginTxn(t, e)
		require.Equal(t, 4, x.scan(key(2), key(6)))
		x.put("count", "4")
		put(t, e, key(6), "new", memory)
		deletingRange(key(0), key(2))(t, e)
		pause()
		require.NoError(t, x.commit())
	})
}

// The read-only transaction anomaly (Fekete, O'Neil and O'Neil, SIGMOD Record
// 2004): a is a checking account and b a savings account, both empty. A deposit to
// savings commits; a reader sees it, and no withdrawal; a withdrawal that had not
// seen the deposit, and so charged a fee, must not commit afterwards.
func TestScriptReadOnlyAnomaly(t *testing.T) {
	meanwhile(t, func(t *testing.T, e *Engine, pause func()) {
		withdraw, deposit := beginTxn(t, e), beginTxn(t, e)
		require.Equal(t, "1", withdraw.get("a"))
		require.Equal(t, "1", withdraw.get("b"))
		require.Equal(t, "1", deposit.get("b"))
		deposit.put("b", "20")
		require.NoError(t, deposit.commit())
		reader := beginTxn(t, e)
		require.Equal(t, "1", reader.get("a"))
		require.Equal(t, "20", reader.get("b"))
		e.ReleaseSnapshot(reader.snapshot.ID)
		withdraw.put("a", "-11")
		pause()
		require.ErrorIs(t, withdraw.commit(), kv.ErrConflict)
	})
}

// Of a transaction, a batch with a guard and a single conditional write that all
// depend on one version of a key, the first wins, in whatever order they come.
func TestScriptTransactionBatchAndConditionalWrite(t *testing.T) {
	type rival struct {
		name string
		do   func(t *testing.T, e *Engine, x *txn, version kv.SeqNum) error
	}
	rivals := []rival{
		{"transaction", func(_ *testing.T, _ *Engine, x *txn, _ kv.SeqNum) error { return x.commit() }},
		{"batch", func(t *testing.T, e *Engine, _ *txn, version kv.SeqNum) error {
			var b kv.WriteBatch
			b.Put([]byte("a"), []byte("batch"))
			b.Put([]byte("b"), []byte("batch"))
			b.Require(kv.Guard{Key: []byte("a"), Condition: kv.Condition{Kind: kv.IfVersion, Version: version}})
			_, err := e.Apply(t.Context(), &b, memory)
			return err
		}},
		{"conditional write", func(t *testing.T, e *Engine, _ *txn, version kv.SeqNum) error {
			w := kv.Write{
				Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("single")},
				If: &kv.Condition{Kind: kv.IfVersion, Version: version}, Durability: memory.Durability,
			}
			require.NoError(t, e.Write(t.Context(), []*kv.Write{&w}))
			return w.Err
		}},
	}
	for _, first := range rivals {
		for _, second := range rivals {
			if first.name == second.name {
				continue
			}
			t.Run(fmt.Sprintf("%s before %s", first.name, second.name), func(t *testing.T) {
				meanwhile(t, func(t *testing.T, e *Engine, pause func()) {
					item, err := e.Get(t.Context(), []byte("a"))
					require.NoError(t, err)
					x := beginTxn(t, e)
					require.Equal(t, "1", x.get("a"))
					x.put("a", "transaction")
					x.put("b", "transaction")
					require.NoError(t, first.do(t, e, x, item.Version))
					before := contents(t, e)
					pause()
					err = second.do(t, e, x, item.Version)
					require.True(t, isRefusal(err), "%v", err)
					require.Equal(t, before, contents(t, e), "a refused write leaves nothing")
				})
			})
		}
	}
}

func isRefusal(err error) bool {
	return errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrConditionFailed)
}
