package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A batch whose request id is known is not applied again, also after a restart. It gets the
// version of the first attempt, and is reported as deduplicated, on every path.
func TestNamedBatchesAreAppliedOnce(t *testing.T) {
	fs := vfs.NewMem()
	e := open(t, small(fs))
	within := keysIn(e, 0, 2)
	across := []string{keysIn(e, 0, 1)[0], keysIn(e, 1, 1)[0]}
	put(t, e, "guard", "1", kv.WriteOptions{Durability: kv.DurabilitySync})
	batches := map[string]func() *kv.WriteBatch{
		"within a partition": func() *kv.WriteBatch { return putAll(within) },
		"across":             func() *kv.WriteBatch { return putAll(across) },
		"if the guard is there": func() *kv.WriteBatch {
			b := putAll(across)
			b.Delete([]byte("guard"))
			b.Require(kv.Guard{Key: []byte("guard"), Condition: kv.Condition{Kind: kv.IfPresent}})
			return b
		},
		"a range": func() *kv.WriteBatch {
			b := new(kv.WriteBatch)
			b.DeleteRange([]byte("x"), []byte("y"))
			return b
		},
	}
	versions := map[string]kv.SeqNum{}
	apply := func(e *Engine, name string, sequence uint64) (version kv.SeqNum, deduplicated bool) {
		version, err := e.Apply(t.Context(), batches[name](), kv.WriteOptions{
			Durability:   kv.DurabilitySync,
			RequestID:    kv.RequestID{ClientID: 7, Sequence: sequence, Retried: versions[name] != 0},
			Deduplicated: &deduplicated,
		})
		require.NoError(t, err, name)
		return version, deduplicated
	}
	order := []string{"within a partition", "across", "if the guard is there", "a range"}
	for i, name := range order {
		version, again := apply(e, name, uint64(i+1))
		require.False(t, again, name)
		versions[name] = version
	}
	check := func(e *Engine) {
		for i, name := range order {
			version, again := apply(e, name, uint64(i+1))
			require.True(t, again, name)
			require.Equal(t, versions[name], version, name)
		}
		require.EqualValues(t, len(order), e.Stats().Duplicates)
	}
	check(e)
	require.NoError(t, e.Close())
	check(open(t, small(fs)))
}

// The first attempt at a write comes after its retry was applied, and after the id of that has left the
// window. It is not applied over what was written since.
func TestALateFirstAttemptIsNotAppliedAgain(t *testing.T) {
	for name, write := range map[string]func(*testing.T, *Engine, kv.RequestID) error{
		"a put": func(t *testing.T, e *Engine, id kv.RequestID) error {
			_, err := e.Put(t.Context(), []byte("k"), []byte("old"), kv.WriteOptions{RequestID: id})
			return err
		},
		"a batch": func(t *testing.T, e *Engine, id kv.RequestID) error {
			b := new(kv.WriteBatch)
			b.Put([]byte("k"), []byte("old"))
			_, err := e.Apply(t.Context(), b, kv.WriteOptions{RequestID: id})
			return err
		},
		"a batch over all partitions": func(t *testing.T, e *Engine, id kv.RequestID) error {
			b := new(kv.WriteBatch)
			b.Put([]byte("k"), []byte("old"))
			b.DeleteRange([]byte("x"), []byte("y"))
			_, err := e.Apply(t.Context(), b, kv.WriteOptions{RequestID: id})
			return err
		},
		"an execution": func(t *testing.T, e *Engine, id kv.RequestID) error {
			b := new(kv.WriteBatch)
			b.Put([]byte("k"), []byte("old"))
			_, _, err := e.Execute(t.Context(), nil, b, nil, kv.WriteOptions{RequestID: id})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := small(vfs.NewMem())
			o.requestIDs = 4
			e := open(t, o)
			put(t, e, "k", "older", memory)
			id := kv.RequestID{ClientID: 1, Sequence: 7}
			again := id
			again.Retried, again.KnownVersion = true, e.Stats().Visible
			require.NoError(t, write(t, e, again))
			for n := range uint64(5 * len(e.partitions)) {
				_, err := e.Put(t.Context(), []byte(key(int(n))), nil, kv.WriteOptions{RequestID: kv.RequestID{ClientID: 2, Sequence: n + 1}})
				require.NoError(t, err)
			}
			put(t, e, "k", "new", memory)
			for range 2 {
				require.ErrorIs(t, write(t, e, id), kv.ErrUncertain)
				requireValue(t, e, "k", "new")
			}
			id.Sequence++
			require.NoError(t, write(t, e, id), "a later write of the client")
			requireValue(t, e, "k", "old")
		})
	}
}

// The window of request ids is that of the store: the ids of a partition that takes all writes are
// known for as long as those of writes to all partitions.
func TestABusyPartitionHasTheWholeWindow(t *testing.T) {
	o := small(vfs.NewMem())
	o.Partitions, o.requestIDs = 4, 100
	e := open(t, o)
	keys := keysIn(e, 2, 100)
	write := func(i int, again bool) (deduplicated bool) {
		id := kv.RequestID{ClientID: 1, Sequence: uint64(i + 1), Retried: again}
		_, err := e.Put(t.Context(), []byte(keys[i]), nil, kv.WriteOptions{RequestID: id})
		require.NoError(t, err, "write %d", i)
		return e.Stats().Duplicates > uint64(i)
	}
	for i := range keys {
		require.False(t, write(i, false))
	}
	for i := range keys {
		require.True(t, write(i, true))
	}
}

func putAll(keys []string) *kv.WriteBatch {
	b := new(kv.WriteBatch)
	for _, key := range keys {
		b.Put([]byte(key), []byte("v"))
	}
	return b
}
