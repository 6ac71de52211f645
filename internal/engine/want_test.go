package engine

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A condition on a version or on presence reads no value, and a condition on a value reads
// none of another length: a condition never copies more into memory than its request has.
func TestConditionsReadNoValues(t *testing.T) {
	const size = 10_000
	disk := faultfs.Wrap(vfs.NewMem(), nil)
	e := open(t, small(disk))
	value := strings.Repeat("v", size)
	version := put(t, e, "k", value, memory)
	require.NoError(t, e.CompactAll(t.Context()))

	unwanted := errors.New("a value was read")
	disk.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Read && strings.HasSuffix(op.Name, ".val") {
			return faultfs.Fault{Err: unwanted}
		}
		return faultfs.Fault{}
	}))
	for _, test := range []struct {
		condition kv.Condition
		want      error
	}{
		{kv.Condition{Kind: kv.IfAbsent}, kv.ErrConditionFailed},
		{kv.Condition{Kind: kv.IfVersion, Version: version + 1}, kv.ErrConditionFailed},
		{kv.Condition{Kind: kv.IfValue, Value: []byte(value[1:])}, kv.ErrConditionFailed},
		{kv.Condition{Kind: kv.IfValue}, kv.ErrConditionFailed},
		{kv.Condition{Kind: kv.IfValue, Value: bytes.Repeat([]byte("w"), size)}, unwanted},
	} {
		w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("k"), Value: []byte("new")}, If: &test.condition}
		require.NoError(t, e.Write(t.Context(), []*kv.Write{&w}))
		require.ErrorIs(t, w.Err, test.want, "write if %v", &test.condition)

		var b kv.WriteBatch
		b.Put([]byte("other"), []byte("x"))
		b.Require(kv.Guard{Key: []byte("k"), Condition: test.condition})
		_, err := e.Apply(t.Context(), &b, kv.WriteOptions{})
		require.ErrorIs(t, err, test.want, "batch if %v", &test.condition)

		held, _, err := e.Execute(t.Context(), []kv.Guard{{Key: []byte("k"), Condition: test.condition}}, nil, nil, kv.WriteOptions{})
		if test.want == unwanted {
			require.ErrorIs(t, err, unwanted)
			continue
		}
		require.NoError(t, err)
		assert.False(t, held, "execute if %v", &test.condition)
	}
	for _, holds := range []kv.Condition{{Kind: kv.IfPresent}, {Kind: kv.IfVersion, Version: version}} {
		held, _, err := e.Execute(t.Context(), []kv.Guard{{Key: []byte("k"), Condition: holds}}, nil, nil, kv.WriteOptions{})
		require.NoError(t, err)
		assert.True(t, held, "execute if %v", &holds)
	}
}

// A read leaves out values that it does not ask for, wherever they lie: in a memtable, in a
// table with the key, or in a value file; in memory or not.
func TestReadsLeaveOutWhatIsNotWanted(t *testing.T) {
	for _, where := range []string{"memtable", "inline", "apart"} {
		t.Run(where, func(t *testing.T) {
			o := small(vfs.NewMem())
			if where == "inline" {
				o.ValueThreshold = 1 << 20
			}
			e := open(t, o)
			version := put(t, e, "k", strings.Repeat("v", 300), memory)
			put(t, e, "empty", "", memory)
			if where != "memtable" {
				require.NoError(t, e.CompactAll(t.Context()))
			}
			for range 2 { // at first from files, then from the cache
				none := kv.Lookup{Key: []byte("k"), Want: kv.WantNone, Budget: kv.NewReadBudget(0)}
				other := kv.Lookup{Key: []byte("k"), Want: kv.WantLength(299)}
				same := kv.Lookup{Key: []byte("k"), Want: kv.WantLength(300)}
				empty := kv.Lookup{Key: []byte("empty"), Want: kv.WantLength(0)}
				absent := kv.Lookup{Key: []byte("absent"), Want: kv.WantNone}
				reads := []*kv.Lookup{&none, &other, &same, &empty, &absent}
				require.NoError(t, e.Lookup(t.Context(), reads))
				for _, l := range reads[:4] {
					require.NoError(t, l.Err)
					assert.True(t, l.Found, "%s", l.Key)
				}
				assert.False(t, none.Budget.Spent(), "what is left out costs nothing")
				assert.Equal(t, version, none.Version)
				assert.True(t, none.Omitted && other.Omitted)
				assert.Nil(t, none.Value)
				assert.Nil(t, other.Value)
				assert.False(t, same.Omitted || empty.Omitted)
				assert.Len(t, same.Value, 300)
				assert.NotNil(t, empty.Value)
				assert.False(t, absent.Found)
			}
		})
	}
}
