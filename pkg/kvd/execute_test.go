package kvd

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func TestExecuteAppliesTheBatchThatTheGuardsChoose(t *testing.T) {
	everyStore(t, func(t *testing.T, db *Client) {
		ctx := t.Context()
		first, err := db.Apply(ctx, new(Batch).Put([]byte("a"), []byte("1")).Put([]byte("b"), []byte("2")))
		require.NoError(t, err)
		a, b, c := []byte("a"), []byte("b"), []byte("c")
		for _, test := range []struct {
			name   string
			guards []Guard
			want   bool
		}{
			{"no guard", nil, true},
			{"present", []Guard{{a, IfPresent()}}, true},
			{"absent", []Guard{{c, IfAbsent()}}, true},
			{"version", []Guard{{a, IfVersion(first)}}, true},
			{"value", []Guard{{b, IfValue([]byte("2"))}}, true},
			{"all", []Guard{{a, IfPresent()}, {b, IfVersion(first)}, {c, IfVersion(0)}}, true},
			{"not present", []Guard{{c, IfPresent()}}, false},
			{"not absent", []Guard{{a, IfAbsent()}}, false},
			{"another version", []Guard{{a, IfVersion(first + 1)}}, false},
			{"another value", []Guard{{b, IfValue([]byte("1"))}}, false},
			{"one of several", []Guard{{a, IfPresent()}, {b, IfValue(nil)}, {c, IfAbsent()}}, false},
		} {
			t.Run(test.name, func(t *testing.T) {
				e := Execution{
					If:   test.guards,
					Then: new(Batch).Put([]byte("then/1"), []byte(test.name)).Put([]byte("then/2"), nil),
					Else: new(Batch).DeleteRange(Prefix([]byte("then/"))).Put([]byte("else"), []byte(test.name)),
				}
				require.NoError(t, db.Put(ctx, []byte("then/0"), nil))
				r, err := db.Execute(ctx, e, Durable(Sync))
				require.NoError(t, err)
				assert.Equal(t, test.want, r.Succeeded)
				written, there := "else", []string{}
				if test.want {
					written, there = "then/1", []string{"then/0", "then/1", "then/2"}
				}
				item, err := db.GetItem(ctx, []byte(written))
				require.NoError(t, err)
				assert.Equal(t, Item{Key: []byte(written), Value: []byte(test.name), Version: r.Version}, item)
				assert.ElementsMatch(t, there, keys(t, db, Prefix([]byte("then/"))))

				// With empty batches it only looks, at a version that is not older.
				looked, err := db.Execute(ctx, Execution{If: test.guards, Then: new(Batch)})
				require.NoError(t, err)
				assert.Equal(t, test.want, looked.Succeeded)
				assert.GreaterOrEqual(t, looked.Version, r.Version)
				assert.Equal(t, 2, e.Then.Len(), "the batches stay as they are")
			})
		}
	})
}

func TestExecuteRefusesWhatMakesNoSense(t *testing.T) {
	db := openMemory(t)
	ctx, k := t.Context(), []byte("k")
	then := new(Batch).Put(k, nil)
	for name, test := range map[string]struct {
		e    Execution
		opts []WriteOption
	}{
		"no condition":      {Execution{If: []Guard{{Key: k}}, Then: then}, nil},
		"empty key":         {Execution{If: []Guard{{nil, IfAbsent()}}, Then: then}, nil},
		"conditional write": {Execution{Then: new(Batch).Put(k, nil, IfAbsent())}, nil},
		"senseless write":   {Execution{Else: new(Batch).Delete(nil)}, nil},
		"TTL":               {Execution{Then: then}, []WriteOption{TTL(time.Second)}},
		"condition":         {Execution{Then: then}, []WriteOption{IfAbsent()}},
	} {
		r, err := db.Execute(ctx, test.e, test.opts...)
		require.ErrorIs(t, err, ErrInvalid, name)
		assert.Equal(t, "execute", requireError(t, err).Op)
		assert.Zero(t, r)
	}
	assert.Empty(t, keys(t, db, All()))
	require.ErrorIs(t, db.Put(ctx, k, nil, Condition{}), ErrInvalid)

	require.NoError(t, db.Close())
	_, err := db.Execute(ctx, Execution{Then: then})
	require.ErrorIs(t, err, ErrClosed)
}

// Callers move a counter that two keys share; a move that loses says so.
func TestConcurrentExecutesAreAtomic(t *testing.T) {
	everyStore(t, func(t *testing.T, db *Client) {
		ctx := t.Context()
		a, b := []byte("a"), []byte("b")
		value := func(n int) []byte { return []byte(strconv.Itoa(n)) }
		_, err := db.Apply(ctx, new(Batch).Put(a, value(0)).Put(b, value(0)))
		require.NoError(t, err)
		const callers = 4
		const moves = 25
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for moved := 0; moved < moves; {
					found, err := db.GetMany(ctx, [][]byte{a, b})
					if !assert.NoError(t, err) {
						return
					}
					assert.Equal(t, found[0].Value, found[1].Value)
					n, err := strconv.Atoi(string(found[0].Value))
					assert.NoError(t, err)
					r, err := db.Execute(ctx, Execution{
						If:   []Guard{{a, IfValue(value(n))}, {b, IfVersion(found[1].Version)}},
						Then: new(Batch).Put(a, value(n+1)).Put(b, value(n+1)),
					}, Durable(Memory))
					if !assert.NoError(t, err) {
						return
					}
					if r.Succeeded {
						moved++
					}
				}
			})
		}
		all.Wait()
		assert.Equal(t, strconv.Itoa(callers*moves), get(t, db, "a"))
	})
}

// The answer to the first try is lost. If the second try writes nothing, only guards
// that can never hold again rule out that the first one is applied later.
func TestAnExecuteThatMayStillBeAppliedIsUncertain(t *testing.T) {
	some := func() *Batch { return new(Batch).Put([]byte("k"), nil) }
	value, version := []Guard{{[]byte("k"), IfValue(nil)}}, []Guard{{[]byte("k"), IfVersion(3)}}
	for name, test := range map[string]struct {
		e         Execution
		succeeded bool
		uncertain bool
	}{
		"then":                          {Execution{If: value, Then: some()}, true, false},
		"else":                          {Execution{If: value, Then: some(), Else: some()}, false, false},
		"no else":                       {Execution{If: value, Then: some()}, false, true},
		"no else, versions":             {Execution{If: version, Then: some()}, false, false},
		"no else, a version of several": {Execution{If: append(version, value...), Then: some()}, false, true},
		"no then":                       {Execution{If: version, Else: some()}, true, true},
		"no write":                      {Execution{If: value}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits between tries
			var log servertest.TryLog
			db := openOn(t, servertest.Losing(&log, 1, func(any) (any, error) {
				return &kvdpb.ExecuteResponse{Succeeded: test.succeeded, Meta: &kvdpb.ResponseMeta{Version: 9}}, nil
			}))
			r, err := db.Execute(t.Context(), test.e)
			tries := log.Take()
			require.Len(t, tries, 2)
			assert.Equal(t, tries[0].GetSequence(), tries[1].GetSequence())
			if !test.uncertain {
				require.NoError(t, err)
				assert.Equal(t, ExecuteResult{test.succeeded, 9}, r)
				return
			}
			require.ErrorIs(t, err, ErrUncertain)
			assert.Equal(t, 2, requireError(t, err).Attempts)
			assert.Zero(t, r)
		})
	}
}

// A conflict of one try says nothing about an earlier one, which is evaluated by itself.
func TestAConflictOfAnExecuteLeavesTheDoubt(t *testing.T) {
	conflict := servertest.WithReason(t, status.New(codes.Aborted, "conflict"), kvdpb.ReasonConflict)
	for losses, uncertain := range map[int]bool{0: false, 1: true} {
		var log servertest.TryLog
		db := openOn(t, servertest.Losing(&log, losses, func(any) (any, error) { return nil, conflict }))
		_, err := db.Execute(t.Context(), Execution{Then: new(Batch).Put([]byte("k"), nil)})
		require.ErrorIs(t, err, ErrConflict)
		assert.Equal(t, uncertain, errors.Is(err, ErrUncertain), "%v", err)
	}
}

func TestATimedExecute(t *testing.T) {
	db := openMemory(t)
	var took Timings
	_, err := db.Execute(context.Background(), Execution{Then: new(Batch).Put([]byte("k"), nil)}, Timed(&took))
	require.NoError(t, err)
	assert.Equal(t, 1, took.Attempts)
	assert.Positive(t, took.Total(), "%v", took)
}
