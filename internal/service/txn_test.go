package service_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func bytesOf(keys ...string) (raw [][]byte) {
	for _, key := range keys {
		raw = append(raw, []byte(key))
	}
	return raw
}

// Every way to read reads a snapshot as long as its lease lasts, and none after.
func TestReadsAtASnapshot(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	f.put(t, "a", "old")
	f.put(t, "b", "old")
	snapshot := f.snapshot(t)
	assert.EqualValues(t, 2, snapshot.Version)
	f.put(t, "a", "new")
	f.put(t, "c", "new")
	_, err := f.kv.Delete(ctx, &kvdpb.DeleteRequest{Key: []byte("b")})
	require.NoError(t, err)

	read := func(at uint64) (all []map[string]string, err error) {
		keys := []string{"a", "b", "c"}
		for range 4 {
			all = append(all, map[string]string{})
		}
		p := f.pipeline(t)
		defer p.close()
		for i, key := range keys {
			r, getErr := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte(key), AtVersion: at})
			if status.Code(getErr) == codes.NotFound {
				info, _ := requireFailure(t, getErr, codes.NotFound, "KEY_NOT_FOUND")
				assert.NotEqual(t, "0", info.Metadata["version"])
			} else if getErr != nil {
				err = getErr
			} else {
				all[0][key] = string(r.Item.Value)
				assert.True(t, at == 0 || r.Meta.Version == at)
			}
			op := getOp(uint64(i), key)
			op.GetGet().AtVersion = at
			p.send(op)
			switch result := p.result(); result.Status.GetReason() {
			case "":
				all[1][key] = string(result.GetGet().Item.Value)
				assert.True(t, at == 0 || result.GetGet().Meta.Version == at)
			case "KEY_NOT_FOUND":
				assert.True(t, at == 0 || result.Status.Version == at)
			default:
				assert.Equal(t, "VERSION_GONE", result.Status.GetReason())
				assert.Error(t, err, "the other ways agree")
			}
		}
		batch, batchErr := f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: bytesOf(keys...), AtVersion: at})
		for i, l := range batch.GetLookups() {
			assert.True(t, at == 0 || batch.Meta.Version == at)
			if l.Found {
				all[2][keys[i]] = string(l.Item.Value)
			}
		}
		chunks, scanErr := f.chunks(t, &kvdpb.ScanRequest{AtVersion: at})
		for _, c := range chunks {
			assert.True(t, at == 0 || c.Meta.Version == at)
			for _, item := range c.Items {
				all[3][string(item.Key)] = string(item.Value)
			}
		}
		assert.Equal(t, status.Code(err), status.Code(batchErr))
		assert.Equal(t, status.Code(err), status.Code(scanErr))
		return all, err
	}
	then, err := read(snapshot.Version)
	require.NoError(t, err)
	for _, way := range then {
		assert.Equal(t, map[string]string{"a": "old", "b": "old"}, way)
	}
	now, err := read(0)
	require.NoError(t, err)
	for _, way := range now {
		assert.Equal(t, map[string]string{"a": "new", "c": "new"}, way)
	}
	_, err = f.txn.ReleaseSnapshot(ctx, &kvdpb.ReleaseSnapshotRequest{SnapshotId: snapshot.SnapshotId})
	require.NoError(t, err)
	_, err = read(snapshot.Version)
	requireFailure(t, err, codes.OutOfRange, "VERSION_GONE")
	_, err = read(uint64(kv.MaxSeqNum))
	requireFailure(t, err, codes.OutOfRange, "VERSION_GONE")
}

// A version comes with the epoch of the store that it is of. In another one, reads at
// it, and commits of what was read at it, are refused, though the number is there.
func TestAVersionOfAnotherEpochIsGone(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	f.put(t, "k", "v")
	s := f.snapshot(t)
	require.EqualValues(t, servicetest.Epoch, s.Epoch)
	gone := func(err error) {
		t.Helper()
		info, _ := requireFailure(t, err, codes.OutOfRange, "VERSION_GONE")
		assert.Equal(t, map[string]string{"cause": "opening"}, info.Metadata)
	}
	for _, epoch := range []uint64{s.Epoch, 0, s.Epoch + 1} {
		check := gone
		if epoch != s.Epoch+1 {
			check = func(err error) { t.Helper(); require.NoError(t, err) }
		}
		_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k"), AtVersion: s.Version, Epoch: epoch})
		check(err)
		_, err = f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: bytesOf("k"), AtVersion: s.Version, Epoch: epoch})
		check(err)
		_, err = f.chunks(t, &kvdpb.ScanRequest{AtVersion: s.Version, Epoch: epoch})
		check(err)
		p := f.pipeline(t)
		op := getOp(1, "k")
		op.GetGet().AtVersion, op.GetGet().Epoch = s.Version, epoch
		p.send(op)
		assert.Equal(t, epoch == s.Epoch+1, p.result().Status.GetReason() == "VERSION_GONE")
		p.close()
		_, err = f.txn.Commit(ctx, &kvdpb.CommitRequest{
			ReadVersion: s.Version, Epoch: epoch, ReadKeys: bytesOf("k"), Mutations: []*kvdpb.Mutation{put("other", "x")},
		})
		check(err)
	}
	_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k"), Epoch: s.Epoch + 1})
	require.NoError(t, err, "the newest is the newest")
}

// A commit that succeeds releases the snapshot that it names, and only that.
func TestACommitReleasesItsSnapshot(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.put(t, "k", "v")
	other, s := f.snapshot(t), f.snapshot(t)
	assert.True(t, s.EndsWithCommit)
	request := &kvdpb.CommitRequest{
		ReadVersion: s.Version, Epoch: s.Epoch, ReadKeys: [][]byte{[]byte("k")},
		Mutations: []*kvdpb.Mutation{put("other", "v")}, SnapshotId: s.SnapshotId,
	}
	f.put(t, "k", "newer")
	_, err := f.txn.Commit(testContext(t), request)
	requireFailure(t, err, codes.Aborted, "CONFLICT")
	assert.Equal(t, 2, f.store.SnapshotCount(), "the client may want to read on")
	request.ReadKeys = nil
	_, err = f.txn.Commit(testContext(t), request)
	require.NoError(t, err)
	assert.Equal(t, 1, f.store.SnapshotCount())
	_, err = f.txn.KeepSnapshot(testContext(t), &kvdpb.KeepSnapshotRequest{SnapshotId: other.SnapshotId})
	require.NoError(t, err)
}

// Numbers that no store gives are refused by the server itself.
func TestVersionsAreBounded(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	const tooLarge = uint64(kv.MaxSeqNum) + 1
	_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k"), AtVersion: tooLarge})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{AtVersion: tooLarge})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = f.chunks(t, &kvdpb.ScanRequest{AtVersion: tooLarge})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = f.txn.Commit(ctx, &kvdpb.CommitRequest{ReadVersion: tooLarge, Mutations: []*kvdpb.Mutation{put("k", "")}})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	p := f.pipeline(t)
	op := getOp(1, "k")
	op.GetGet().AtVersion = tooLarge
	p.send(op)
	assert.Equal(t, "INVALID_REQUEST", p.result().Status.GetReason())
	p.close()
}

func TestLeases(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	begin := func(millis uint32) *kvdpb.BeginSnapshotResponse {
		r, err := f.txn.BeginSnapshot(ctx, &kvdpb.BeginSnapshotRequest{LeaseMs: millis})
		require.NoError(t, err)
		return r
	}
	f.put(t, "k", "v")
	assert.EqualValues(t, 60_000, begin(0).LeaseMs, "the store's choice")
	assert.EqualValues(t, 60_000, begin(math.MaxUint32).LeaseMs, "it may grant less")
	short := begin(1000)
	assert.EqualValues(t, 1000, short.LeaseMs)
	assert.EqualValues(t, 1, short.Version)
	assert.NotZero(t, short.SnapshotId)

	f.store.Advance(999 * time.Millisecond)
	kept, err := f.txn.KeepSnapshot(ctx, &kvdpb.KeepSnapshotRequest{SnapshotId: short.SnapshotId, LeaseMs: 2000})
	require.NoError(t, err)
	assert.EqualValues(t, 2000, kept.LeaseMs)
	f.store.Advance(1999 * time.Millisecond)
	assert.Equal(t, 3, f.store.SnapshotCount())
	f.store.Advance(time.Millisecond)
	assert.Equal(t, 2, f.store.SnapshotCount())
	for _, id := range []uint64{short.SnapshotId, 0, math.MaxUint64} {
		_, err = f.txn.KeepSnapshot(ctx, &kvdpb.KeepSnapshotRequest{SnapshotId: id})
		requireFailure(t, err, codes.OutOfRange, "VERSION_GONE")
		_, err = f.txn.ReleaseSnapshot(ctx, &kvdpb.ReleaseSnapshotRequest{SnapshotId: id})
		require.NoError(t, err, "it may have ended")
	}
	for f.store.SnapshotCount() < servicetest.MaxSnapshots {
		begin(0)
	}
	_, err = f.txn.BeginSnapshot(ctx, &kvdpb.BeginSnapshotRequest{})
	info, _ := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
	assert.Equal(t, "snapshots", info.Metadata["cause"])
	assert.EqualValues(t, 1, f.requests("BeginSnapshot", codes.ResourceExhausted))
	assert.EqualValues(t, 3, f.requests("KeepSnapshot", codes.OutOfRange))
	assert.EqualValues(t, 3, f.requests("ReleaseSnapshot", codes.OK))
}

// A transaction commits unless what it read was written since, of which a key
// that came into a range it scanned is one.
func TestCommit(t *testing.T) {
	all := []*kvdpb.Range{{}}
	for name, test := range map[string]struct {
		keys      []string
		ranges    []*kvdpb.Range
		meanwhile *kvdpb.Mutation
		conflict  string // the key
	}{
		"nothing read":         {meanwhile: put("a", "x")},
		"nothing written":      {keys: []string{"a", "missing"}, ranges: all},
		"another key":          {keys: []string{"a"}, meanwhile: put("b", "x")},
		"a key":                {keys: []string{"b", "a"}, meanwhile: put("a", "x"), conflict: "a"},
		"the same value":       {keys: []string{"a"}, meanwhile: put("a", "1"), conflict: "a"},
		"a key that was there": {keys: []string{"a"}, meanwhile: del("a"), conflict: "a"},
		"a key that was not":   {keys: []string{"new"}, meanwhile: put("new", "x"), conflict: "new"},
		"a phantom":            {ranges: []*kvdpb.Range{{Start: []byte("n"), End: []byte("o")}}, meanwhile: put("new", "x"), conflict: "new"},
		"beside the range":     {ranges: []*kvdpb.Range{{Start: []byte("n"), End: []byte("new")}}, meanwhile: put("new", "x")},
		"a range emptied":      {ranges: all, meanwhile: removeRange("a", "b"), conflict: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, service.Options{})
			ctx := testContext(t)
			f.put(t, "a", "1")
			f.put(t, "b", "1")
			snapshot := f.snapshot(t)
			if test.meanwhile != nil {
				_, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{test.meanwhile}})
				require.NoError(t, err)
			}
			r, err := f.txn.Commit(ctx, &kvdpb.CommitRequest{
				ReadVersion: snapshot.Version, ReadKeys: bytesOf(test.keys...), ReadRanges: test.ranges,
				Mutations: []*kvdpb.Mutation{put("result", "x"), del("b")},
			})
			_, found := f.get(t, "result", 0)
			if test.conflict != "" {
				info, _ := requireFailure(t, err, codes.Aborted, "CONFLICT")
				assert.Equal(t, map[string]string{"key": `"` + test.conflict + `"`}, info.Metadata)
				assert.False(t, found)
				assert.Equal(t, map[string]uint64{"commit": 0, "conflict": 1, "condition_failed": 0}, f.Stats().Transactions)
				return
			}
			require.NoError(t, err)
			assert.True(t, found)
			assert.Greater(t, r.Meta.Version, snapshot.Version)
			assert.Equal(t, map[string]uint64{"commit": 1, "conflict": 0, "condition_failed": 0}, f.Stats().Transactions)
			assert.EqualValues(t, 1, f.requests("Commit", codes.OK))
		})
	}
}

func TestACommitTakesConditionsAndAName(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	m := put("k", "v")
	m.Precondition = mustExist
	request := &kvdpb.CommitRequest{Mutations: []*kvdpb.Mutation{m}, Options: &kvdpb.RequestOptions{ClientId: 1, Sequence: 1}}
	_, err := f.txn.Commit(ctx, request)
	requireFailure(t, err, codes.FailedPrecondition, "CONDITION_FAILED")
	m.Precondition = mustNotExist
	first, err := f.txn.Commit(ctx, request)
	require.NoError(t, err)
	again, err := f.txn.Commit(ctx, request)
	require.NoError(t, err, "its condition held the first time")
	assert.Equal(t, first.Meta.Version, again.Meta.Version)
	assert.Equal(t, map[string]uint64{"commit": 2, "conflict": 0, "condition_failed": 1}, f.Stats().Transactions)
}

// What was not judged is no outcome.
func TestATransactionThatWasNotJudgedIsNotCounted(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	fails := errors.Join(kv.ErrUncertain, kv.ErrConflict)
	store.OnApply = func(context.Context, *kv.WriteBatch) error { return fails }
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	for _, err := range []error{fails, kv.ErrOverloaded, kv.ErrVersionGone} {
		fails = err
		_, err := f.txn.Commit(testContext(t), &kvdpb.CommitRequest{Mutations: []*kvdpb.Mutation{put("k", "")}})
		require.Error(t, err)
		_, err = f.txn.Execute(testContext(t), &kvdpb.ExecuteRequest{})
		require.Error(t, err)
	}
	assert.Equal(t, map[string]uint64{"commit": 0, "conflict": 0, "condition_failed": 0}, f.Stats().Transactions)
}

func TestExecute(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	f.put(t, "a", "1")
	guard := func(key string, c *kvdpb.Precondition) *kvdpb.ExecuteRequest_Guard {
		return &kvdpb.ExecuteRequest_Guard{Key: []byte(key), Precondition: c}
	}
	for name, test := range map[string]struct {
		guards []*kvdpb.ExecuteRequest_Guard
		holds  bool
	}{
		"no guards":     {nil, true},
		"all hold":      {[]*kvdpb.ExecuteRequest_Guard{guard("a", valueEquals("1")), guard("b", mustNotExist), guard("b", nil)}, true},
		"one does not":  {[]*kvdpb.ExecuteRequest_Guard{guard("a", valueEquals("1")), guard("b", mustExist)}, false},
		"its version":   {[]*kvdpb.ExecuteRequest_Guard{guard("a", versionEquals(1))}, true},
		"not a version": {[]*kvdpb.ExecuteRequest_Guard{guard("a", versionEquals(2))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := f.txn.Execute(ctx, &kvdpb.ExecuteRequest{
				Guards: test.guards, ThenMutations: []*kvdpb.Mutation{put("then", name)}, ElseMutations: []*kvdpb.Mutation{put("else", name), del("no such key")},
			})
			require.NoError(t, err)
			assert.Equal(t, test.holds, r.Succeeded)
			then, _ := f.get(t, "then", 0)
			otherwise, _ := f.get(t, "else", 0)
			assert.Equal(t, test.holds, then == name)
			assert.Equal(t, !test.holds, otherwise == name)

			empty, err := f.txn.Execute(ctx, &kvdpb.ExecuteRequest{Guards: test.guards})
			require.NoError(t, err)
			assert.Equal(t, test.holds, empty.Succeeded)
			assert.Equal(t, r.Meta.Version, empty.Meta.Version, "what the guards were judged at")
		})
	}
	assert.EqualValues(t, 10, f.Stats().Transactions["commit"])
	assert.EqualValues(t, 10, f.requests("Execute", codes.OK))

	request := &kvdpb.ExecuteRequest{
		Guards:        []*kvdpb.ExecuteRequest_Guard{guard("lock", mustNotExist)},
		ThenMutations: []*kvdpb.Mutation{put("lock", "mine")}, Options: &kvdpb.RequestOptions{ClientId: 1, Sequence: 1},
	}
	for range 2 {
		r, err := f.txn.Execute(ctx, request)
		require.NoError(t, err)
		assert.True(t, r.Succeeded, "asked again, it says what it said")
	}
	conditional := put("k", "")
	conditional.Precondition = mustExist
	for name, r := range map[string]*kvdpb.ExecuteRequest{
		"condition in a list": {ThenMutations: []*kvdpb.Mutation{conditional}},
		"version 0":           {Guards: []*kvdpb.ExecuteRequest_Guard{guard("k", versionEquals(0))}},
		"no key":              {Guards: []*kvdpb.ExecuteRequest_Guard{guard("", mustExist)}},
		"no mutation":         {ElseMutations: []*kvdpb.Mutation{{}}},
		"empty key":           {ElseMutations: []*kvdpb.Mutation{del("")}},
	} {
		_, err := f.txn.Execute(ctx, r)
		requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
		assert.NotEmpty(t, name)
	}
}

// Each limit of a transaction is reached by one that succeeds and passed by one
// that is refused.
func TestLimitsOfTransactions(t *testing.T) {
	f := startWith(t, smallLimits, service.Options{})
	ctx := testContext(t)
	f.put(t, "k", "")
	version := f.snapshot(t).Version
	text := func(n int) string { return strings.Repeat("x", n) }
	span := func(start, end string) *kvdpb.Range { return &kvdpb.Range{Start: []byte(start), End: []byte(end)} }
	commit := func(keys []string, ranges []*kvdpb.Range, m ...*kvdpb.Mutation) error {
		_, err := f.txn.Commit(ctx, &kvdpb.CommitRequest{
			ReadVersion: version, ReadKeys: bytesOf(keys...), ReadRanges: ranges, Mutations: append(m, put("k", "")),
		})
		return err
	}
	// Nothing of what is written may be read, or the next commit conflicts.
	keys := []string{"r1", "r2", "r3"}
	guarded := func(key, value string) *kvdpb.Mutation {
		m := put(key, "")
		m.Precondition = valueEquals(value)
		return m
	}
	guards := func(n int, value string) (all []*kvdpb.ExecuteRequest_Guard) {
		for range n {
			all = append(all, &kvdpb.ExecuteRequest_Guard{Key: []byte("g"), Precondition: valueEquals(value)})
		}
		return all
	}
	execute := func(guards []*kvdpb.ExecuteRequest_Guard, then, otherwise []*kvdpb.Mutation) error {
		_, err := f.txn.Execute(ctx, &kvdpb.ExecuteRequest{Guards: guards, ThenMutations: then, ElseMutations: otherwise})
		return err
	}
	list := func(m ...*kvdpb.Mutation) []*kvdpb.Mutation { return m }
	conditional := func(n int) error {
		_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("c")}, Precondition: valueEquals(text(n))})
		if status.Code(err) == codes.FailedPrecondition {
			return nil
		}
		return err
	}
	removal := func(start, end string) error {
		_, err := f.kv.DeleteRange(ctx, &kvdpb.DeleteRangeRequest{Range: span(start, end)})
		return err
	}
	failed := func(err error) error { // a condition was judged
		require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
		return nil
	}
	for name, test := range map[string]struct {
		at, above error
		message   string
	}{
		"reads":             {commit(keys, []*kvdpb.Range{span("s", "t")}), commit(keys, []*kvdpb.Range{span("s", "t"), span("u", "v")}), "read 5 keys and ranges, limit is 4"},
		"key read":          {commit([]string{text(8)}, nil), commit([]string{text(9)}, nil), "key has 9 bytes, limit is 8"},
		"range read":        {commit(nil, []*kvdpb.Range{span("s", text(8))}), commit(nil, []*kvdpb.Range{span("s", text(9))}), "9 bytes, limit is 8"},
		"bytes":             {commit([]string{text(8)}, nil, put("w", text(64)), put("w", text(25))), commit([]string{text(8)}, nil, put("w", text(64)), put("w", text(26))), "101 bytes of what it read and writes, limit is 100"},
		"mutations":         {commit(nil, nil, del("a"), del("b"), del("c")), commit(nil, nil, del("a"), del("b"), del("c"), del("d")), "5 operations, limit is 4"},
		"with conditions":   {failed(commit(nil, nil, del("a"), guarded("b", "v"))), commit(nil, nil, del("a"), del("c"), guarded("b", "v")), "5 operations, limit is 4"},
		"guards":            {execute(guards(3, ""), list(del("a")), nil), execute(guards(3, ""), list(del("a")), list(del("b"))), "5 operations, limit is 4"},
		"bytes of guards":   {execute(guards(3, text(32)), nil, list(del("a"))), execute(guards(3, text(32)), nil, list(del("aa"))), "101 bytes, limit is 100"},
		"value compared":    {conditional(64), conditional(65), "value has 65 bytes, limit is 64"},
		"value of a guard":  {execute(guards(1, text(64)), nil, nil), execute(guards(1, text(65)), nil, nil), "value has 65 bytes, limit is 64"},
		"bound of a delete": {removal("a", text(8)), removal(text(9), "y"), "9 bytes, limit is 8"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, test.at)
			requireFailure(t, test.above, codes.InvalidArgument, "TOO_LARGE")
			assert.Contains(t, status.Convert(test.above).Message(), test.message)
		})
	}
	for name, r := range map[string]*kvdpb.CommitRequest{
		"nothing to write":    {ReadVersion: version, ReadKeys: bytesOf("k")},
		"read at no version":  {ReadKeys: bytesOf("k"), Mutations: list(del("k"))},
		"empty key":           {ReadVersion: version, ReadKeys: bytesOf(""), Mutations: list(del("k"))},
		"reversed range":      {ReadVersion: version, ReadRanges: []*kvdpb.Range{span("b", "a")}, Mutations: list(del("k"))},
		"durability":          {Mutations: list(del("k")), Options: &kvdpb.RequestOptions{Durability: 4}},
		"retried with a name": {Mutations: list(del("k")), Options: &kvdpb.RequestOptions{Retried: true}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.txn.Commit(ctx, r)
			requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
			assert.NotContains(t, status.Convert(err).Message(), `"`, "no keys in messages")
		})
	}
}

// The calls of transactions are within the same limits as all others.
func TestTransactionsAreAdmittedLikeAllCalls(t *testing.T) {
	// The deadline has to be long enough for the commit to enter the store.
	testwait.Doubling(t, 200*time.Millisecond, func(deadline time.Duration) bool {
		store := servicetest.New(kv.DefaultLimits)
		entered, refused := make(chan struct{}, 2), make(chan struct{})
		store.OnApply = func(ctx context.Context, _ *kv.WriteBatch) error {
			entered <- struct{}{}
			<-refused
			<-ctx.Done()
			return ctx.Err()
		}
		store.OnSnapshot = func(context.Context) error { panic("at the disco") }
		f := start(t, store, func() *service.Server {
			return service.New(store, service.Options{Streams: 1, Deadline: deadline}, protocols...)
		})
		answer := make(chan error, 1)
		go func() {
			_, err := f.txn.Commit(context.Background(), &kvdpb.CommitRequest{Mutations: []*kvdpb.Mutation{put("k", "")}})
			answer <- err
		}()
		select {
		case <-entered:
		case err := <-answer:
			requireFailure(t, err, codes.DeadlineExceeded, "DEADLINE_EXCEEDED")
			return false
		}
		_, err := f.txn.BeginSnapshot(testContext(t), &kvdpb.BeginSnapshotRequest{})
		close(refused)
		info, _ := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
		assert.Equal(t, "streams", info.Metadata["cause"])
		requireFailure(t, <-answer, codes.DeadlineExceeded, "DEADLINE_EXCEEDED")
		testwait.Until(t, func() bool { return f.Stats().Streams == 0 })
		_, err = f.txn.BeginSnapshot(testContext(t), &kvdpb.BeginSnapshotRequest{})
		if status.Code(err) == codes.DeadlineExceeded {
			return false
		}
		requireFailure(t, err, codes.Internal, "INTERNAL")
		assert.EqualValues(t, 1, f.Stats().Panics)
		assert.EqualValues(t, 1, f.requests("BeginSnapshot", codes.ResourceExhausted))
		assert.EqualValues(t, 1, f.requests("BeginSnapshot", codes.Internal))
		assert.EqualValues(t, 1, f.requests("Commit", codes.DeadlineExceeded))
		return true
	})
}

// A snapshot is begun with a read if memory has the answer, by gRPC and in frames. A key that may
// not be read, or whose answer is not at hand, is left to another read.
func TestASnapshotBeginsWithARead(t *testing.T) {
	clients := []*client{{name: "user", read: []string{"user/"}, write: []string{""}}}
	fsys := vfs.NewMem()
	tokens(t, fsys, clients)
	authority, err := auth.Open(fsys, "tokens", func(err error) { assert.NoError(t, err) })
	require.NoError(t, err)
	store := servicetest.New(kv.DefaultLimits)
	store.OnCached = func(key []byte) bool { return string(key) != "user/on disk" }
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{Auth: authority}, protocols...) })
	ctx := signedIn(testContext(t), clients[0].token)
	for key, bytes := range map[string]int{"user/small": 1, "user/large": 16<<10 + 1, "user/on disk": 1, "other": 1} {
		_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(key), Value: make([]byte, bytes)}})
		require.NoError(t, err)
	}
	conn, err := f.listener.Dial()
	require.NoError(t, err)
	byFrames := newCallConn(t, conn, clients[0].token)
	for name, txn := range map[string]kvdpb.TxnServiceClient{"gRPC": f.txn, "frames": kvdpb.NewTxnServiceClient(byFrames)} {
		for key, want := range map[string]string{
			"": "-", "user/small": "found", "user/absent": "absent", "user/large": "-", "user/on disk": "-", "other": "-",
			"user/" + strings.Repeat("k", 5000): "-",
		} {
			s, err := txn.BeginSnapshot(ctx, &kvdpb.BeginSnapshotRequest{ReadKey: []byte(key)})
			require.NoError(t, err, name)
			got := "-"
			switch {
			case s.Read.GetFound():
				got = "found"
				assert.Equal(t, []byte{0}, s.Read.Item.Value)
				assert.LessOrEqual(t, s.Read.Item.Version, s.Version)
			case s.Read != nil:
				got = "absent"
			}
			assert.Equal(t, want, got, "%s: %.20s", name, key)
			_, err = txn.ReleaseSnapshot(ctx, &kvdpb.ReleaseSnapshotRequest{SnapshotId: s.SnapshotId})
			require.NoError(t, err)
		}
	}
	require.NoError(t, byFrames.Close())
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
}
