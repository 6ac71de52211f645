package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

func guard(key string, c kv.Condition) kv.Guard { return kv.Guard{Key: []byte(key), Condition: c} }

// puts returns a batch that sets keys to a value.
func puts(value string, keys ...string) *kv.WriteBatch {
	var b kv.WriteBatch
	for _, key := range keys {
		b.Put([]byte(key), []byte(value))
	}
	return &b
}

func TestExecuteAppliesTheBatchThatTheGuardsChoose(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	version := put(t, e, "there", "value", memory)
	del(t, e, "gone", memory)
	absent, present := kv.Condition{Kind: kv.IfAbsent}, kv.Condition{Kind: kv.IfPresent}
	for name, c := range map[string]struct {
		guards []kv.Guard
		holds  bool
	}{
		"no guard":       {nil, true},
		"absent":         {[]kv.Guard{guard("gone", absent)}, true},
		"not absent":     {[]kv.Guard{guard("there", absent)}, false},
		"present":        {[]kv.Guard{guard("there", present), guard("gone", absent)}, true},
		"not present":    {[]kv.Guard{guard("there", present), guard("gone", present)}, false},
		"version":        {[]kv.Guard{guard("there", kv.Condition{Kind: kv.IfVersion, Version: version})}, true},
		"not version":    {[]kv.Guard{guard("there", kv.Condition{Kind: kv.IfVersion, Version: version + 1})}, false},
		"value":          {[]kv.Guard{guard("there", kv.Condition{Kind: kv.IfValue, Value: []byte("value")})}, true},
		"not value":      {[]kv.Guard{guard("there", kv.Condition{Kind: kv.IfValue})}, false},
		"the last fails": {[]kv.Guard{guard("there", present), guard("never", absent), guard("gone", present)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			then, otherwise := puts("then", "t1", "t2", "t3"), puts("otherwise", "o1", "o2", "o3")
			ok, at, err := e.Execute(t.Context(), c.guards, then, otherwise, memory)
			require.NoError(t, err)
			require.Equal(t, c.holds, ok)
			done, not := "t", "o"
			if !ok {
				done, not = not, done
			}
			for i := 1; i <= 3; i++ {
				item, err := e.Get(t.Context(), []byte(done+strconv.Itoa(i)))
				require.NoError(t, err)
				require.Equal(t, at, item.Version)
				requireAbsent(t, e, not+strconv.Itoa(i))
				del(t, e, done+strconv.Itoa(i), memory)
			}
			newest := put(t, e, "x", "1", synced)
			for _, empty := range []*kv.WriteBatch{nil, {}} {
				ok, at, err = e.Execute(t.Context(), c.guards, empty, empty, synced)
				require.NoError(t, err)
				require.Equal(t, c.holds, ok)
				require.GreaterOrEqual(t, at, newest, "judged at a version that has everything")
				require.Equal(t, e.Stats().Visible, at, "and nothing was written")
			}
		})
	}
}

func TestExecuteRefusesWhatMakesNoSense(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	some := puts("v", "k")
	conditional := puts("v", "k")
	conditional.Require(guard("k", kv.Condition{Kind: kv.IfAbsent}))
	onlyGuard := &kv.WriteBatch{}
	onlyGuard.Require(guard("k", kv.Condition{Kind: kv.IfAbsent}))
	long := string(make([]byte, e.Limits().KeyBytes+1))
	for name, c := range map[string]struct {
		guards          []kv.Guard
		then, otherwise *kv.WriteBatch
		o               kv.WriteOptions
		want            error
	}{
		"empty key":         {[]kv.Guard{guard("", kv.Condition{})}, some, nil, memory, kv.ErrInvalidArgument},
		"no such condition": {[]kv.Guard{guard("k", kv.Condition{Kind: 99})}, some, nil, memory, kv.ErrInvalidArgument},
		"long key":          {[]kv.Guard{guard(long, kv.Condition{})}, some, nil, memory, kv.ErrTooLarge},
		"long then":         {nil, puts("v", long), nil, memory, kv.ErrTooLarge},
		"long otherwise":    {nil, some, puts("v", long), memory, kv.ErrTooLarge},
		"nested":            {nil, conditional, nil, memory, kv.ErrInvalidArgument},
		"nested alone":      {nil, some, onlyGuard, memory, kv.ErrInvalidArgument},
		"durability":        {nil, some, nil, kv.WriteOptions{Durability: 9}, kv.ErrInvalidArgument},
		"name":              {nil, some, nil, kv.WriteOptions{RequestID: kv.RequestID{ClientID: 1, Sequence: 1 << 63}}, kv.ErrInvalidArgument},
		"too many":          {make([]kv.Guard, e.Limits().BatchOps+1), some, nil, memory, kv.ErrTooLarge},
	} {
		for i := range c.guards {
			if name == "too many" {
				c.guards[i] = guard("k", kv.Condition{})
			}
		}
		_, _, err := e.Execute(t.Context(), c.guards, c.then, c.otherwise, c.o)
		require.ErrorIs(t, err, c.want, name)
	}
	requireAbsent(t, e, "k")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := e.Execute(ctx, []kv.Guard{guard("k", kv.Condition{Kind: kv.IfAbsent})}, some, nil, synced)
	if err != nil {
		require.True(t, errors.Is(err, context.Canceled), "%v", err)
	}
	require.NoError(t, e.Close())
	_, _, err = e.Execute(t.Context(), nil, some, nil, memory)
	require.ErrorIs(t, err, kv.ErrClosed)
}

// Many goroutines increment a counter that is kept in several partitions: no increment is
// lost, and none is seen in parts.
func TestConcurrentExecutesAreOneAfterTheOther(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	keys := []string{"a", "b", "c", "d", "e"}
	_, err := e.Apply(t.Context(), puts("0", keys...), memory)
	require.NoError(t, err)
	const workers, steps = 6, 20
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for done := 0; done < steps; {
				old, ok := get(t, e, "a")
				if !assert.True(t, ok) {
					return
				}
				n, err := strconv.Atoi(old)
				assert.NoError(t, err)
				var guards []kv.Guard
				for _, key := range keys {
					guards = append(guards, guard(key, kv.Condition{Kind: kv.IfValue, Value: []byte(old)}))
				}
				moved, _, err := e.Execute(context.Background(), guards, puts(strconv.Itoa(n+1), keys...), nil, memory)
				if !assert.NoError(t, err) {
					return
				}
				if moved {
					done++
				}
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		requireValue(t, e, key, fmt.Sprint(workers*steps))
	}
}

// Executes with one request id, sent one after the other or concurrently, are applied once,
// and each gets the answer of the first, although the guard no longer holds.
func TestNamedExecuteIsAppliedOnce(t *testing.T) {
	disk := vfs.NewMem()
	e := open(t, unhurried(disk))
	type outcome struct {
		ok bool
		at kv.SeqNum
	}
	first := map[int]outcome{}
	execute := func(e *Engine, n int, retried bool) (outcome, error) {
		// The batches lie in whichever partitions their keys fall into.
		guards := []kv.Guard{guard(fmt.Sprint("guard", n), kv.Condition{Kind: kv.IfAbsent})}
		if n%2 == 1 {
			guards[0].Kind = kv.IfPresent // then otherwise is applied
		}
		then, otherwise := puts("then", fmt.Sprint("guard", n), fmt.Sprint("then", n)), puts("otherwise", fmt.Sprint("guard", n), fmt.Sprint("otherwise", n))
		o := kv.WriteOptions{Durability: kv.DurabilityBuffered, RequestID: kv.RequestID{ClientID: 9, Sequence: uint64(n), Retried: retried}}
		ok, at, err := e.Execute(context.Background(), guards, then, otherwise, o)
		return outcome{ok, at}, err
	}
	check := func(e *Engine, n int) {
		t.Helper()
		want, not := "then", "otherwise"
		if n%2 == 1 {
			want, not = not, want
		}
		require.Equal(t, n%2 == 0, first[n].ok)
		requireValue(t, e, fmt.Sprint(want, n), want)
		requireAbsent(t, e, fmt.Sprint(not, n))
		again, err := execute(e, n, true)
		require.NoError(t, err)
		require.Equal(t, first[n], again)
		requireValue(t, e, fmt.Sprint("guard", n), want)
		requireAbsent(t, e, fmt.Sprint(not, n))
	}
	const rounds, rivals = 60, 4
	for n := 1; n <= rounds; n++ {
		outcomes := make([]outcome, rivals)
		var all sync.WaitGroup
		for i := range outcomes {
			all.Go(func() {
				var err error
				outcomes[i], err = execute(e, n, i > 0)
				assert.NoError(t, err)
			})
		}
		all.Wait()
		for _, o := range outcomes {
			require.Equal(t, outcomes[0], o, "round %d", n)
		}
		first[n] = outcomes[0]
		check(e, n)
	}
	after := open(t, small(disk.KillImage()))
	for n := 1; n <= rounds; n++ {
		check(after, n)
	}
}

// An execute that wrote nothing is not remembered: its guards are evaluated again.
func TestNamedExecuteOfNothingIsJudgedAnew(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	o := kv.WriteOptions{RequestID: kv.RequestID{ClientID: 1, Sequence: 1}}
	guards := []kv.Guard{guard("k", kv.Condition{Kind: kv.IfPresent})}
	ok, _, err := e.Execute(t.Context(), guards, puts("then", "t"), nil, o)
	require.NoError(t, err)
	require.False(t, ok)
	put(t, e, "k", "v", memory)
	o.RequestID.Retried = true
	ok, _, err = e.Execute(t.Context(), guards, puts("then", "t"), nil, o)
	require.NoError(t, err)
	require.True(t, ok)
	requireValue(t, e, "t", "then")
}

func TestForgottenExecuteIsUncertain(t *testing.T) {
	o := small(vfs.NewMem())
	o.Partitions, o.requestIDs = 1, 1
	e := open(t, o)
	for n := range uint64(5) {
		_, err := e.Put(t.Context(), []byte(key(int(n))), nil, kv.WriteOptions{RequestID: kv.RequestID{ClientID: 5, Sequence: n + 1}})
		require.NoError(t, err)
	}
	id := kv.RequestID{ClientID: 1, Sequence: 1, Retried: true}
	_, _, err := e.Execute(t.Context(), nil, puts("v", "k"), nil, kv.WriteOptions{RequestID: id})
	require.ErrorIs(t, err, kv.ErrUncertain)
	requireAbsent(t, e, "k")
	id.KnownVersion = e.Stats().Visible
	ok, _, err := e.Execute(t.Context(), nil, puts("v", "k"), nil, kv.WriteOptions{RequestID: id})
	require.NoError(t, err)
	require.True(t, ok)
}
