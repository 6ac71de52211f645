package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A request id belongs to the write that bore it first: the same write is answered
// again, another one is refused, whichever way they take, and over a restart.
func TestARequestIDBelongsToItsWrite(t *testing.T) {
	disk := vfs.NewMem()
	o := small(disk)
	e := open(t, o)
	a, b := keysIn(e, 0, 2)[0], keysIn(e, 0, 2)[1] // one partition remembers them all
	across := keysIn(e, 1, 1)[0]
	op := func(key, value string) kv.Op { return kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)} }
	batch := func(ops ...kv.Op) *kv.WriteBatch {
		var b kv.WriteBatch
		for _, op := range ops {
			b.Add(op)
		}
		return &b
	}
	guarded := func(c kv.Condition, ops ...kv.Op) *kv.WriteBatch {
		b := batch(ops...)
		b.Require(kv.Guard{Key: ops[0].Key, Condition: c})
		return b
	}
	expiring := func(op kv.Op, after uint64) kv.Op {
		op.Expiry = e.Now() + after
		return op
	}
	type write func(kv.WriteOptions) (kv.SeqNum, error)
	single := func(op kv.Op, condition *kv.Condition) write {
		return func(o kv.WriteOptions) (kv.SeqNum, error) {
			w := kv.Write{Op: op, If: condition, RequestID: o.RequestID, Durability: o.Durability}
			if err := e.Write(t.Context(), []*kv.Write{&w}); err != nil {
				return 0, err
			}
			return w.Version, w.Err
		}
	}
	apply := func(b *kv.WriteBatch) write {
		return func(o kv.WriteOptions) (kv.SeqNum, error) { return e.Apply(t.Context(), b, o) }
	}
	commit := func(b *kv.WriteBatch) write {
		return func(o kv.WriteOptions) (kv.SeqNum, error) {
			return e.Commit(t.Context(), &kv.Transaction{Batch: b}, o)
		}
	}
	execute := func(guard kv.Condition, then, otherwise *kv.WriteBatch) write {
		return func(o kv.WriteOptions) (kv.SeqNum, error) {
			_, version, err := e.Execute(t.Context(), []kv.Guard{{Key: []byte("guard"), Condition: guard}}, then, otherwise, o)
			return version, err
		}
	}
	absent, present := kv.Condition{Kind: kv.IfAbsent}, kv.Condition{Kind: kv.IfPresent}
	put := func(key, value string, o kv.WriteOptions) (kv.SeqNum, error) {
		return e.Put(t.Context(), []byte(key), []byte(value), o)
	}
	tests := []struct {
		first, again write // the same
		others       []write
	}{
		{
			first: func(o kv.WriteOptions) (kv.SeqNum, error) { return put(a, "1", o) },
			again: single(op(a, "1"), nil),
			others: []write{
				func(o kv.WriteOptions) (kv.SeqNum, error) { return put(a, "2", o) },
				func(o kv.WriteOptions) (kv.SeqNum, error) { return put(b, "1", o) },
				func(o kv.WriteOptions) (kv.SeqNum, error) { return e.Delete(t.Context(), []byte(a), o) },
				single(expiring(op(a, "1"), 100_000), nil),
				apply(batch(op(a, "1"), op(b, "1"))),
				apply(guarded(absent, op(a, "2"))),
				single(op(a, "2"), &absent),
				commit(batch(op(a, "2"))),
				execute(absent, batch(op(a, "2")), nil),
			},
		},
		{
			first:  single(expiring(op(a, "3"), 100_000), nil),
			again:  single(expiring(op(a, "3"), 200_000), nil),
			others: []write{single(op(a, "3"), nil)},
		},
		{
			first:  apply(batch(op(a, "4"), op(across, "4"))),
			again:  apply(batch(op(a, "4"), op(across, "4"))),
			others: []write{apply(batch(op(a, "4"), op(across, "5"))), apply(batch(op(a, "4"))), single(op(a, "4"), nil)},
		},
		{
			first:  apply(guarded(present, op(a, "5"))),
			again:  apply(guarded(absent, op(a, "5"))), // under another condition it is the same write
			others: []write{apply(guarded(present, op(a, "6"))), apply(guarded(absent, op(a, "6")))},
		},
		{
			first:  single(op(a, "6"), &present),
			again:  single(op(a, "6"), &present),
			others: []write{single(op(a, "7"), &absent), single(op(a, "7"), &present)},
		},
		{
			first:  execute(absent, batch(op(a, "7")), batch(op(b, "7"))),
			again:  execute(absent, batch(op(a, "7")), batch(op(b, "7"))),
			others: []write{execute(absent, batch(op(a, "8")), batch(op(b, "7"))), execute(present, batch(op(a, "8")), batch(op(b, "8")))},
		},
	}
	versions := make([]kv.SeqNum, len(tests))
	options := func(i int, d kv.Durability) kv.WriteOptions {
		return kv.WriteOptions{Durability: d, RequestID: kv.RequestID{ClientID: 3, Sequence: uint64(i + 1)}}
	}
	for i, test := range tests {
		var err error
		versions[i], err = test.first(options(i, kv.DurabilitySync))
		require.NoError(t, err, "test %d", i)
	}
	check := func() {
		before := contents(t, e)
		for i, test := range tests {
			for j, other := range test.others {
				_, err := other(options(i, kv.DurabilitySync))
				require.ErrorIs(t, err, kv.ErrInvalidArgument, "test %d, other write %d", i, j)
				require.ErrorIs(t, err, kv.ErrRequestIDReused)
			}
			version, err := test.again(options(i, kv.DurabilityMemory))
			require.NoError(t, err, "test %d", i)
			require.Equal(t, versions[i], version, "test %d", i)
		}
		require.Equal(t, before, contents(t, e))
	}
	check()
	o.FS = disk.KillImage()
	require.NoError(t, e.Close())
	e = open(t, o)
	check()
}
