package kvd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// openFramed opens a client of a server of raw frames over a pipe, which works in a
// bubble. It serves one frame after the other: answer is called for each, and sends.
func openFramed(t *testing.T, answer func(r *frame.Request, send func(*frame.Response)), opts ...Option) *Client {
	var all sync.WaitGroup
	serve := func(conn net.Conn) {
		defer func() { _ = conn.Close() }() // or by the client
		in := bufio.NewReader(conn)
		if _, err := in.Discard(len(frame.Preamble)); err != nil {
			return
		}
		_, err := io.WriteString(conn, frame.Preamble)
		for err == nil {
			var r frame.Request
			if err = r.Read(in, 1<<20); err != nil {
				return
			}
			answer(&r, func(a *frame.Response) {
				a.Compact, a.ID = true, r.ID
				_, err = conn.Write(a.AppendCompact(nil))
			})
		}
	}
	dial := WithDialer(func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		all.Go(func() { serve(theirs) })
		return ours, nil
	})
	db, err := Open("memory", append(opts, dial, WithConns(1), WithTimeout(time.Hour))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, db.Close())
		all.Wait()
	})
	return db
}

// done is a success of each operation of a frame.
func done(r *frame.Request) (results []frame.Result) {
	for i := range r.Ops {
		results = append(results, frame.Result{Tag: uint64(i), Kind: r.Ops[i].Kind, Version: 1})
	}
	return results
}

// unit is short, since the client stirs every few hundred milliseconds.
const unit = time.Millisecond

// stages are what a server says of 28 units.
var stages = []uint64{
	uint64(28 * unit), uint64(21 * unit),
	uint64(1 * unit), uint64(2 * unit), uint64(3 * unit), uint64(4 * unit), uint64(5 * unit), uint64(6 * unit),
}

// Time in a bubble passes only where it is said to, so every stage is exact.
func TestEveryMomentOfACallIsInAStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flags []bool
		db := openFramed(t, func(r *frame.Request, send func(*frame.Response)) {
			flags = append(flags, r.Timed)
			if !r.Timed {
				time.Sleep(10 * unit)
				send(&frame.Response{Results: done(r)})
				return
			}
			time.Sleep(28*unit + 7*unit)
			send(&frame.Response{Results: done(r), Timings: stages})
		}, WithBatching(Batching{Window: 1}))
		ctx := context.Background()
		require.NoError(t, db.Put(ctx, []byte("first"), nil)) // connects

		var others sync.WaitGroup
		put := func(opts ...WriteOption) {
			others.Go(func() { assert.NoError(t, db.Put(ctx, []byte("k"), nil, opts...)) })
			synctest.Wait()
		}
		put() // takes the window for ten units
		put() // shares the frame of the timed one
		time.Sleep(2 * unit)
		var tim Timings
		put(Timed(&tim))
		others.Wait()
		want := Timings{
			ClientQueue: 8 * unit, Network: 7 * unit,
			Gate: 1 * unit, Inbox: 2 * unit, Batch: 3 * unit, Engine: 4 * unit, LogWrite: 5 * unit, Sync: 6 * unit, Reply: 7 * unit,
			Attempts: 1, FrameOps: 2,
		}
		assert.Equal(t, want, tim)
		assert.Equal(t, 43*unit, tim.Total())
		require.NoError(t, db.Put(ctx, []byte("last"), nil))
		assert.Equal(t, []bool{false, false, true, false}, flags, "the server is asked if a caller asks")
	})
}

// If the answers come in several frames, each caller gets the timings of its own.
func TestTimingsOfAnswersInSeveralFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openFramed(t, func(r *frame.Request, send func(*frame.Response)) {
			results := done(r)
			for i := len(results) - 1; i >= 0; i-- {
				time.Sleep(2 * unit)
				send(&frame.Response{Results: results[i : i+1], Timings: []uint64{uint64((i + 1) * int(unit)), 0}})
			}
		}, WithBatching(Batching{Window: 1}))
		var other sync.WaitGroup
		other.Go(func() { assert.NoError(t, db.Put(context.Background(), []byte("before"), nil)) })
		synctest.Wait() // it takes the window, so that the others share a frame
		var first, second, third Timings
		p := db.Pipeline()
		p.Put([]byte("a"), nil, Timed(&first))
		p.Put([]byte("b"), nil, Timed(&second))
		p.Put([]byte("c"), nil)
		p.Put([]byte("d"), nil, Timed(&third))
		require.NoError(t, p.Do(context.Background()))
		other.Wait()
		for i, tim := range map[int]Timings{0: first, 1: second, 3: third} {
			took := time.Duration(4-i) * 2 * unit
			said := time.Duration(i+1) * unit
			assert.Equal(t, 4, tim.FrameOps)
			assert.Equal(t, max(took-said, 0), tim.Network, i)
			assert.Equal(t, said, tim.Reply, "what a server of long ago does not tell apart")
			assert.Equal(t, 8*unit-took, tim.Return, "it is the caller of all who looks at them in order")
		}
	})
}

func TestTimingsOfCallsThatFail(t *testing.T) {
	t.Run("without an answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db := openFramed(t, func(r *frame.Request, send func(*frame.Response)) { time.Sleep(time.Minute) })
			ctx, cancel := context.WithTimeout(t.Context(), 10*unit)
			defer cancel()
			tim := Timings{Sync: 1}
			_, err := db.Get(ctx, []byte("k"), Timed(&tim))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, Timings{Network: 10 * unit, Attempts: 1, FrameOps: 1}, tim)
		})
	})
	t.Run("before it left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db := openFramed(t, func(r *frame.Request, send func(*frame.Response)) {
				time.Sleep(time.Minute)
				send(&frame.Response{Results: done(r)})
			}, WithBatching(Batching{Window: 1}))
			var other sync.WaitGroup
			other.Go(func() { assert.NoError(t, db.Put(context.Background(), []byte("k"), nil)) })
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 10*unit)
			defer cancel()
			var tim Timings
			require.ErrorIs(t, db.Put(ctx, []byte("l"), nil, Timed(&tim)), context.DeadlineExceeded)
			assert.Equal(t, Timings{ClientQueue: 10 * unit, Attempts: 1, FrameOps: 1}, tim)
			other.Wait()
		})
	})
	t.Run("with an answer, after a try", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			db := openFramed(t, func(r *frame.Request, send func(*frame.Response)) {
				time.Sleep(30 * unit)
				results := []frame.Result{{Code: int32(codes.ResourceExhausted), Reason: kvdpb.ReasonOverloaded, RetryAfterMillis: 100}}
				if tries++; tries == 2 {
					results[0] = frame.Result{Code: int32(codes.NotFound), Reason: kvdpb.ReasonKeyNotFound}
				}
				send(&frame.Response{Results: results, Timings: stages})
			})
			var tim Timings
			_, err := db.Get(t.Context(), []byte("k"), Timed(&tim))
			require.ErrorIs(t, err, ErrNotFound)
			assert.Equal(t, 2, tim.Attempts)
			assert.GreaterOrEqual(t, tim.ClientQueue, 130*unit, "the first try and the wait behind it")
			assert.Less(t, tim.ClientQueue, 130*unit+firstBackoff)
			assert.Equal(t, 2*unit, tim.Network)
			assert.Equal(t, 4*unit, tim.Engine)
		})
	})
	t.Run("without a try", func(t *testing.T) {
		db := openMemory(t)
		tim := Timings{Sync: 1}
		_, err := db.Get(t.Context(), nil, Timed(&tim))
		require.ErrorIs(t, err, ErrInvalid)
		assert.Zero(t, tim)
	})
}

// Every call that takes Timed fills it in, by whichever way it travels.
func TestEveryCallIsTimed(t *testing.T) {
	everyStore(t, func(t *testing.T, db *Client) { testEveryCallIsTimed(t, db, 1, 1) })
	t.Run("by streams", func(t *testing.T) { testEveryCallIsTimed(t, openMemory(t, WithoutRawFrames()), 1, 0) })
	t.Run("without frames", func(t *testing.T) {
		testEveryCallIsTimed(t, openMemory(t, WithBatching(Batching{Disabled: true})), 0, 0)
	})
}

// testEveryCallIsTimed expects frames of op operations of one key, and frames of call calls; 0 is no
// frame.
func testEveryCallIsTimed(t *testing.T, db *Client, op, call int) {
	ctx := context.Background()
	key := []byte("k")
	large := make([]byte, 128<<10)
	require.NoError(t, db.Put(ctx, key, nil)) // a snapshot is of some version
	snapshot, err := db.Snapshot(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, snapshot.Close()) }()
	var batch Batch
	batch.Put(key, nil)
	absent := func(_ any, err error) error {
		if err == nil {
			return nil
		}
		require.ErrorIs(t, err, ErrNotFound)
		return nil
	}
	for _, c := range []struct {
		name  string
		ops   int // in the frame
		reads bool
		run   func(CallOption) error
	}{
		{"get", op, true, func(o CallOption) error { return absent(db.Get(ctx, key, o)) }},
		{"get item", op, true, func(o CallOption) error { return absent(db.GetItem(ctx, key, o)) }},
		{"get many", 2 * op, true, func(o CallOption) error { return absent(db.GetMany(ctx, [][]byte{key, []byte("l")}, o)) }},
		{"snapshot get", op, true, func(o CallOption) error { return absent(snapshot.Get(ctx, key, o)) }},
		{"snapshot get item", op, true, func(o CallOption) error { return absent(snapshot.GetItem(ctx, key, o)) }},
		{"snapshot get many", op, true, func(o CallOption) error { return absent(snapshot.GetMany(ctx, [][]byte{key}, o)) }},
		{"put", op, false, func(o CallOption) error { return db.Put(ctx, key, nil, o) }},
		{"large put", 0, false, func(o CallOption) error { return db.Put(ctx, key, large, o) }},
		{"delete", op, false, func(o CallOption) error { return db.Delete(ctx, key, o) }},
		{"conditional put", op, false, func(o CallOption) error { return db.Put(ctx, key, nil, IfAbsent(), o) }},
		{"delete range", 0, false, func(o CallOption) error { return db.DeleteRange(ctx, Prefix([]byte("x")), o) }},
		{"apply", call, false, func(o CallOption) error { _, err := db.Apply(ctx, &batch, o); return err }},
		{"update", call, false, func(o CallOption) error {
			return db.Update(ctx, func(tx *Txn) error { return tx.Put(ctx, key, nil) }, CommitWith(o))
		}},
		{"txn get", op, true, func(o CallOption) error {
			return db.Update(ctx, func(tx *Txn) error { return absent(tx.Get(ctx, key, o)) })
		}},
		{"txn get many", op, true, func(o CallOption) error {
			return db.Update(ctx, func(tx *Txn) error {
				if err := tx.Put(ctx, []byte("own"), nil); err != nil {
					return err
				}
				return absent(tx.GetMany(ctx, [][]byte{[]byte("own"), key}, o))
			})
		}},
		{"pipeline get", op, true, func(o CallOption) error {
			p := db.Pipeline()
			p.Get([]byte("k"), o)
			return absent(nil, p.Do(ctx))
		}},
		{"pipeline put", op, false, func(o CallOption) error {
			p := db.Pipeline()
			p.Put(key, nil, o)
			return p.Do(ctx)
		}},
		{"large pipeline put", 0, false, func(o CallOption) error {
			p := db.Pipeline()
			p.Put(key, large, o)
			return p.Do(ctx)
		}},
	} {
		tim := Timings{Sync: time.Hour, Attempts: 9}
		begun := time.Now()
		require.NoError(t, c.run(Timed(&tim)), c.name)
		elapsed := time.Since(begun)
		assert.Equal(t, 1, tim.Attempts, c.name)
		assert.Equal(t, c.ops, tim.FrameOps, c.name)
		assert.LessOrEqual(t, tim.Total(), elapsed, c.name)
		assert.Positive(t, tim.Network, c.name)
		assert.Positive(t, tim.Gate, c.name)
		if c.reads {
			assert.Zero(t, tim.Batch+tim.LogWrite+tim.Sync, c.name)
		}
	}

	tim := Timings{Sync: time.Hour}
	require.NoError(t, db.Update(ctx, func(tx *Txn) error {
		if err := tx.Put(ctx, key, nil); err != nil {
			return err
		}
		_, err := tx.Get(ctx, key, Timed(&tim))
		assert.Zero(t, tim)
		tim.Sync = time.Hour
		_, err2 := tx.GetMany(ctx, [][]byte{key}, Timed(&tim))
		assert.Zero(t, tim)
		return errors.Join(err, err2)
	}))
	_, err = db.Get(ctx, key, Timed(nil))
	require.NoError(t, err)
	require.NoError(t, db.Put(ctx, key, nil, Timed(nil)))
	require.ErrorIs(t, db.Put(ctx, key, nil, Timed(&tim), Timed(&tim)), ErrInvalid)
	batch.Put(key, nil, Timed(&tim))
	_, err = db.Apply(ctx, &batch)
	require.ErrorIs(t, err, ErrInvalid, "a write of a batch is not timed for itself")
}

// A lone timed operation among others does not keep them from sharing its frame, and
// everybody may ask at once.
func TestTimedCallsAtOnce(t *testing.T) {
	db := openMemory(t)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for range 50 {
				var tim Timings
				opts := []WriteOption{Timed(&tim)}
				if i%2 == 0 {
					opts = nil
				}
				if !assert.NoError(t, db.Put(t.Context(), []byte("k"), nil, opts...)) {
					return
				}
				if opts != nil {
					assert.Positive(t, tim.FrameOps)
					assert.Positive(t, tim.Total())
				}
			}
		})
	}
	all.Wait()
}
