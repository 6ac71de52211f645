package service_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// conditionalWrites are the ways to a conditional write of one key.
var conditionalWrites = map[string]func(t *testing.T, f *fixture, item *kvdpb.Item, c *kvdpb.Precondition) error{
	"put": func(t *testing.T, f *fixture, item *kvdpb.Item, c *kvdpb.Precondition) error {
		_, err := f.kv.Put(testContext(t), &kvdpb.PutRequest{Item: item, Precondition: c})
		return err
	},
	"delete": func(t *testing.T, f *fixture, item *kvdpb.Item, c *kvdpb.Precondition) error {
		_, err := f.kv.Delete(testContext(t), &kvdpb.DeleteRequest{Key: item.Key, Precondition: c})
		return err
	},
	"batch": func(t *testing.T, f *fixture, item *kvdpb.Item, c *kvdpb.Precondition) error {
		_, err := f.kv.Write(testContext(t), &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{
			{Op: &kvdpb.Mutation_Put{Put: item}, Precondition: c}, put("other", "x"),
		}})
		return err
	},
	"independent": func(t *testing.T, f *fixture, item *kvdpb.Item, c *kvdpb.Precondition) error {
		r, err := f.kv.Write(testContext(t), &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{
			{Op: &kvdpb.Mutation_Put{Put: item}, Precondition: c},
		}})
		require.NoError(t, err)
		for _, s := range r.Statuses {
			err = status.Error(codes.Code(s.Code), s.Reason)
		}
		return err
	},
	"frame": func(t *testing.T, f *fixture, item *kvdpb.Item, c *kvdpb.Precondition) error {
		p := f.pipeline(t)
		defer p.close()
		op := putOp(1, string(item.Key), string(item.Value))
		op.GetPut().Precondition = c
		p.send(op)
		s := p.result().Status
		return status.Error(codes.Code(s.GetCode()), s.GetReason())
	},
}

// Each kind of condition, of a key that is there with version 1 and value "1" and
// of one that is not: unary, in a frame, in a batch and among independent
// mutations it means the same.
func TestConditions(t *testing.T) {
	for name, test := range map[string]struct {
		condition       *kvdpb.Precondition
		present, absent bool // whether it holds
	}{
		"none":                   {nil, true, true},
		"without a kind":         {&kvdpb.Precondition{}, true, true},
		"must exist":             {mustExist, true, false},
		"must exist, false":      {&kvdpb.Precondition{Kind: &kvdpb.Precondition_MustExist{}}, true, true},
		"must not exist":         {mustNotExist, false, true},
		"must not exist, false":  {&kvdpb.Precondition{Kind: &kvdpb.Precondition_MustNotExist{}}, true, true},
		"its version":            {versionEquals(1), true, false},
		"another version":        {versionEquals(2), false, false},
		"its value":              {valueEquals("1"), true, false},
		"another value":          {valueEquals("2"), false, false},
		"the empty value":        {valueEquals(""), false, false},
		"the largest of numbers": {versionEquals(1<<64 - 1), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for way, write := range conditionalWrites {
				f := startWith(t, kv.DefaultLimits, service.Options{})
				f.put(t, "there", "1")
				for key, holds := range map[string]bool{"there": test.present, "missing": test.absent} {
					err := write(t, f, &kvdpb.Item{Key: []byte(key), Value: []byte("new")}, test.condition)
					want := codes.OK
					if !holds {
						want = codes.FailedPrecondition
					}
					require.Equal(t, want, status.Code(err), "%s of %s: %v", way, key, err)
					if !holds && (way == "independent" || way == "frame") {
						require.ErrorContains(t, err, "CONDITION_FAILED", "%s of %s", way, key)
					}
				}
				if !test.present {
					value, _ := f.get(t, "there", 0)
					assert.Equal(t, "1", value, way)
				}
			}
		})
	}
}

// A condition that only a newer server knows is refused: the write must not happen
// as if it had none.
func TestAConditionOfANewerVersionIsRefused(t *testing.T) {
	newer := &kvdpb.Precondition{Kind: &kvdpb.Precondition_MustExist{MustExist: true}}
	newer.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 100, protowire.VarintType), 1))
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.put(t, "there", "1")
	for way, write := range conditionalWrites {
		err := write(t, f, &kvdpb.Item{Key: []byte("there"), Value: []byte("new")}, newer)
		assert.Equal(t, codes.InvalidArgument, status.Code(err), "%s: %v", way, err)
	}
	_, err := f.txn.Execute(testContext(t), &kvdpb.ExecuteRequest{
		Guards:        []*kvdpb.ExecuteRequest_Guard{{Key: []byte("there"), Precondition: newer}},
		ThenMutations: []*kvdpb.Mutation{put("there", "new")},
	})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	value, _ := f.get(t, "there", 0)
	assert.Equal(t, "1", value)
}

func TestAFailedConditionSaysWhatWasFound(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	version := f.put(t, "k", "v")
	_, err := f.kv.Put(testContext(t), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}, Precondition: mustNotExist})
	info, _ := requireFailure(t, err, codes.FailedPrecondition, "CONDITION_FAILED")
	assert.Equal(t, map[string]string{"key": `"k"`, "version": "1"}, info.Metadata)
	assert.EqualValues(t, 1, f.requests("Put", codes.FailedPrecondition))

	p := f.pipeline(t)
	op := deleteOp(1, "k")
	op.GetDelete().Precondition = versionEquals(version + 1)
	p.send(op)
	r := p.result()
	assert.EqualValues(t, codes.FailedPrecondition, r.Status.GetCode())
	assert.Equal(t, "CONDITION_FAILED", r.Status.GetReason())
	assert.Equal(t, version, r.Status.GetVersion())
	op.GetDelete().Key = []byte("missing")
	p.send(op)
	r = p.result()
	assert.Equal(t, "CONDITION_FAILED", r.Status.GetReason())
	assert.Zero(t, r.Status.GetVersion())
	p.close()
}

// A write returns what the key held before, if it is asked to and there was
// something.
func TestPreviousIsReturned(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	putAndGet := func(value string, ttl uint64) *kvdpb.Item {
		r, err := f.kv.Put(ctx, &kvdpb.PutRequest{
			Item: &kvdpb.Item{Key: []byte("k"), Value: []byte(value), TtlMs: ttl}, ReturnPrevious: true,
		})
		require.NoError(t, err)
		return r.Previous
	}
	assert.Nil(t, putAndGet("", 0))
	previous := putAndGet("2", 5000)
	require.NotNil(t, previous, "an empty value is a value")
	assert.Empty(t, previous.Value)
	assert.Empty(t, previous.Key)
	assert.EqualValues(t, 1, previous.Version)
	assert.Zero(t, previous.TtlMs)
	f.store.Advance(2 * time.Second)

	p := f.pipeline(t)
	op := putOp(1, "k", "3")
	op.GetPut().ReturnPrevious = true
	p.send(op)
	previous = p.result().GetPut().GetPrevious()
	assert.Equal(t, "2", string(previous.GetValue()))
	assert.EqualValues(t, 2, previous.GetVersion())
	assert.EqualValues(t, 3000, previous.GetTtlMs())
	p.send(putOp(2, "k", "4"))
	assert.Nil(t, p.result().GetPut().GetPrevious(), "the client did not ask")
	op = deleteOp(3, "k")
	op.GetDelete().ReturnPrevious = true
	p.send(op)
	assert.Equal(t, "4", string(p.result().GetDelete().GetPrevious().GetValue()))
	p.send(op)
	assert.Nil(t, p.result().GetDelete().GetPrevious(), "there is nothing")
	p.close()

	f.put(t, "k", "5")
	r, err := f.kv.Delete(ctx, &kvdpb.DeleteRequest{Key: []byte("k"), ReturnPrevious: true})
	require.NoError(t, err)
	assert.Equal(t, "5", string(r.Previous.GetValue()))
}

// A time to live counts from the write; answers carry what is left.
func TestTimeToLive(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	item := func(key string) *kvdpb.Item { return &kvdpb.Item{Key: []byte(key), TtlMs: 60_000} }
	_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: item("unary")})
	require.NoError(t, err)
	for _, atomic := range []bool{false, true} {
		_, err = f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: atomic, Mutations: []*kvdpb.Mutation{
			{Op: &kvdpb.Mutation_Put{Put: item(map[bool]string{false: "independent", true: "batch"}[atomic])}},
		}})
		require.NoError(t, err)
	}
	p := f.pipeline(t)
	op := putOp(1, "frame", "")
	op.GetPut().Item.TtlMs = 60_000
	p.send(op)
	p.result()
	f.put(t, "eternal", "")

	keys := []string{"batch", "eternal", "frame", "independent", "unary"}
	left := func() (all []map[string]uint64) {
		for range 4 {
			all = append(all, map[string]uint64{})
		}
		var raw [][]byte
		for i, key := range keys {
			raw = append(raw, []byte(key))
			r, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte(key)})
			if err == nil {
				all[0][key] = r.Item.TtlMs
			}
			p.send(getOp(uint64(i), key))
			if result := p.result(); result.Status == nil {
				all[1][key] = result.GetGet().Item.TtlMs
			}
		}
		batch, err := f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: raw})
		require.NoError(t, err)
		for i, l := range batch.Lookups {
			if l.Found {
				all[2][keys[i]] = l.Item.TtlMs
			}
		}
		chunks, err := f.chunks(t, &kvdpb.ScanRequest{KeysOnly: true})
		require.NoError(t, err)
		for _, item := range chunks[0].Items {
			all[3][string(item.Key)] = item.TtlMs
		}
		return all
	}
	f.store.Advance(59_999 * time.Millisecond)
	for _, got := range left() {
		assert.Equal(t, map[string]uint64{"batch": 1, "eternal": 0, "frame": 1, "independent": 1, "unary": 1}, got)
	}
	f.store.Advance(time.Millisecond)
	for _, got := range left() {
		assert.Equal(t, map[string]uint64{"eternal": 0}, got)
	}
	p.close()
}

func TestATimeToLiveOfACenturyIsTheLongest(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	const century = 36500 * 24 * 3600 * 1000
	_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k"), TtlMs: century}})
	require.NoError(t, err)
	tooLong := &kvdpb.Item{Key: []byte("k"), TtlMs: century + 1}
	_, err = f.kv.Put(ctx, &kvdpb.PutRequest{Item: tooLong})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	assert.Contains(t, err.Error(), "100 years")
	_, err = f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{{Op: &kvdpb.Mutation_Put{Put: tooLong}}}})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	r, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{{Op: &kvdpb.Mutation_Put{Put: tooLong}}}})
	require.NoError(t, err)
	assert.Equal(t, "INVALID_REQUEST", r.Statuses[0].Reason)
	p := f.pipeline(t)
	p.send(&kvdpb.PipelineRequest_Op{Tag: 1, Op: &kvdpb.PipelineRequest_Op_Put{Put: &kvdpb.PutRequest{Item: tooLong}}})
	assert.Equal(t, "INVALID_REQUEST", p.result().Status.GetReason())
	p.close()
}

// A named write that comes again is applied once, in each way that one can come.
func TestANamedWriteIsAppliedOnce(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	sequence := uint64(0)
	for way, write := range map[string]func(*kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error){
		"put": func(o *kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error) {
			r, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}, ReturnPrevious: true, Options: o})
			if r.GetMeta().GetDeduplicated() {
				assert.Nil(t, r.Previous, "what it found is not known any more")
			}
			return r.GetMeta(), err
		},
		"delete": func(o *kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error) {
			r, err := f.kv.Delete(ctx, &kvdpb.DeleteRequest{Key: []byte("k"), Options: o})
			return r.GetMeta(), err
		},
		"atomic batch": func(o *kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error) {
			r, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{put("k", "")}, Options: o})
			return r.GetMeta(), err
		},
		"transaction": func(o *kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error) {
			r, err := f.txn.Commit(ctx, &kvdpb.CommitRequest{Mutations: []*kvdpb.Mutation{put("k", "")}, Options: o})
			return r.GetMeta(), err
		},
		"execute": func(o *kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error) {
			r, err := f.txn.Execute(ctx, &kvdpb.ExecuteRequest{ThenMutations: []*kvdpb.Mutation{put("k", "")}, Options: o})
			return r.GetMeta(), err
		},
		"lone mutation": func(o *kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error) {
			r, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{put("k", "")}, Options: o})
			require.NoError(t, err)
			for _, s := range r.Statuses {
				err = status.Error(codes.Code(s.Code), s.Reason)
			}
			return r.GetMeta(), err
		},
		"frame": func(o *kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error) {
			p := f.pipeline(t)
			defer p.close()
			op := putOp(1, "k", "")
			op.GetPut().Options, op.GetPut().ReturnPrevious = o, true
			p.send(op)
			r := p.result()
			if r.GetPut().GetMeta().GetDeduplicated() {
				assert.Nil(t, r.GetPut().Previous)
			}
			return r.GetPut().GetMeta(), status.Error(codes.Code(r.Status.GetCode()), r.Status.GetReason())
		},
	} {
		t.Run(way, func(t *testing.T) {
			sequence++
			o := &kvdpb.RequestOptions{ClientId: 1 << 63, Sequence: sequence}
			first, err := write(o)
			require.NoError(t, err)
			assert.False(t, first.Deduplicated)
			newest := f.put(t, "k", "meanwhile")
			o.Retried, o.KnownVersion = true, first.Version-1
			again, err := write(o)
			require.NoError(t, err)
			assert.True(t, again.Deduplicated)
			assert.Equal(t, first.Version, again.Version)
			value, _ := f.get(t, "k", 0)
			assert.Equal(t, "meanwhile", value)

			f.store.ForgetNames()
			_, err = write(o)
			require.Equal(t, codes.DeadlineExceeded, status.Code(err), "it may have happened")
			o.KnownVersion = newest
			after, err := write(o)
			require.NoError(t, err, "it cannot have happened before what the client knew")
			assert.Greater(t, after.Version, newest)
		})
	}
}

func TestNamesOfBatches(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	request := &kvdpb.WriteRequest{
		Atomic: true, Mutations: []*kvdpb.Mutation{put("a", ""), put("b", "")},
		Options: &kvdpb.RequestOptions{Sequence: 7},
	}
	first, err := f.kv.Write(ctx, request)
	require.NoError(t, err)
	again, err := f.kv.Write(ctx, request)
	require.NoError(t, err)
	assert.Equal(t, first.Meta.Version, again.Meta.Version)

	request.Atomic = false
	_, err = f.kv.Write(ctx, request)
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	assert.Contains(t, err.Error(), "must be atomic")
	_, err = f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: request.Mutations, Options: &kvdpb.RequestOptions{Retried: true}})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	assert.Contains(t, err.Error(), "needs a name")

	name := &kvdpb.RequestOptions{Sequence: 1<<63 - 1}
	_, err = f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}, Options: name})
	require.NoError(t, err)
	name.Sequence++
	_, err = f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}, Options: name})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
}

// An answer that was lost is in doubt for its caller, which asks again.
func TestALostAnswerIsAskedForAgain(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	lose := true
	store.OnWrite = func(context.Context, []*kv.Write) error {
		if lose {
			lose = false
			return kv.ErrUncertain
		}
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	p := f.pipeline(t)
	op := putOp(1, "k", "v")
	op.GetPut().Options = &kvdpb.RequestOptions{ClientId: 1, Sequence: 1}
	p.send(op)
	assert.Equal(t, "OUTCOME_UNKNOWN", p.result().Status.GetReason())
	op.GetPut().Options.Retried = true
	p.send(op)
	r := p.result()
	assert.Nil(t, r.Status)
	assert.True(t, r.GetPut().Meta.Deduplicated)
	p.close()
}

func TestDeleteRange(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	remove := func(start, end string) (uint64, error) {
		r, err := f.kv.DeleteRange(ctx, &kvdpb.DeleteRangeRequest{Range: &kvdpb.Range{Start: []byte(start), End: []byte(end)}})
		return r.GetMeta().GetVersion(), err
	}
	f.fill(t, 10, 1)
	f.put(t, "\x00", "the first of all keys")
	version, err := remove("k00003", "k00005")
	require.NoError(t, err)
	assert.EqualValues(t, 12, version)
	chunks, err := f.chunks(t, &kvdpb.ScanRequest{Range: &kvdpb.Range{Start: []byte("k")}})
	require.NoError(t, err)
	assert.Equal(t, append(wantKeys(0, 3), wantKeys(5, 10)...), keysOf(chunks...))
	_, err = remove("", "k00009")
	require.NoError(t, err)
	assert.Equal(t, 1, f.store.Len())

	for name, bounds := range map[string][2]string{"reversed": {"l", "a"}, "empty": {"k", "k"}} {
		_, err = remove(bounds[0], bounds[1])
		require.NoError(t, err, name)
	}
	_, err = f.kv.DeleteRange(ctx, &kvdpb.DeleteRangeRequest{})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = remove("a", strings.Repeat("b", kv.DefaultLimits.KeyBytes+1))
	requireFailure(t, err, codes.InvalidArgument, "TOO_LARGE")
	assert.Equal(t, 1, f.store.Len())
	_, err = remove("a", "")
	require.NoError(t, err)
	assert.Zero(t, f.store.Len())
	assert.EqualValues(t, 5, f.requests("DeleteRange", codes.OK))
	assert.EqualValues(t, 2, f.requests("DeleteRange", codes.InvalidArgument))
}

func removeRange(start, end string) *kvdpb.Mutation {
	return &kvdpb.Mutation{Op: &kvdpb.Mutation_DeleteRange{DeleteRange: &kvdpb.Range{Start: []byte(start), End: []byte(end)}}}
}

// A batch empties a range and fills it again, at one version.
func TestABatchReplacesARange(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	f.fill(t, 10, 1)
	before := f.snapshot(t)
	_, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{
		put("k00001", "lost"), removeRange("k", "l"), put("k00002", "new"),
	}})
	require.NoError(t, err)
	chunks, err := f.chunks(t, &kvdpb.ScanRequest{})
	require.NoError(t, err)
	assert.Equal(t, wantKeys(2, 3), keysOf(chunks...))
	chunks, err = f.chunks(t, &kvdpb.ScanRequest{AtVersion: before.Version})
	require.NoError(t, err)
	assert.Equal(t, wantKeys(0, 10), keysOf(chunks...))

	r, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{removeRange("k", "l"), put("a", "")}})
	require.NoError(t, err)
	assert.Equal(t, "INVALID_REQUEST", r.Statuses[0].Reason, "only a batch removes ranges")
	assert.Contains(t, r.Statuses[0].Message, "atomic")
	assert.Empty(t, r.Statuses[1].Reason)
	conditional := removeRange("k", "l")
	conditional.Precondition = mustExist
	_, err = f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{conditional}})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	assert.Equal(t, 2, f.store.Len())
	_, err = f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{removeRange("l", "k"), removeRange("b", "")}})
	require.NoError(t, err)
	assert.Equal(t, 1, f.store.Len())
}

// A batch with a condition that fails does nothing, and the message says which.
func TestConditionsOfABatch(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	f.put(t, "a", "1")
	guarded := func(key string, c *kvdpb.Precondition) *kvdpb.Mutation {
		m := put(key, "2")
		m.Precondition = c
		return m
	}
	_, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{guarded("a", valueEquals("1")), guarded("b", mustExist)}})
	info, _ := requireFailure(t, err, codes.FailedPrecondition, "CONDITION_FAILED")
	assert.Equal(t, map[string]string{"key": `"b"`, "version": "0"}, info.Metadata)
	value, _ := f.get(t, "a", 0)
	assert.Equal(t, "1", value)
	_, err = f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{
		guarded("a", valueEquals("1")), guarded("b", mustNotExist), guarded("b", mustNotExist),
	}})
	require.NoError(t, err, "all are judged on the state before the batch")
	_, err = f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("a")}, Precondition: versionEquals(0)})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
}
