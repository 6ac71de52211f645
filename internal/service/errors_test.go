package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

var failures = []struct {
	err    error
	code   codes.Code
	reason string
}{
	{kv.ErrNotFound, codes.NotFound, "KEY_NOT_FOUND"},
	{kv.ErrInvalidArgument, codes.InvalidArgument, "INVALID_REQUEST"},
	{kv.ErrTooLarge, codes.InvalidArgument, "TOO_LARGE"},
	{kv.ErrRequestIDReused, codes.InvalidArgument, "REQUEST_ID_REUSED"},
	{kv.ErrOverloaded, codes.ResourceExhausted, "OVERLOADED"},
	{&kv.OverloadError{Reason: "inbox_full", RetryAfter: time.Second}, codes.ResourceExhausted, "OVERLOADED"},
	{fmt.Errorf("%w: %w", kv.ErrUncertain, context.DeadlineExceeded), codes.DeadlineExceeded, "OUTCOME_UNKNOWN"},
	{fmt.Errorf("%w: %w", kv.ErrUncertain, kv.ErrFailed), codes.Unavailable, "OUTCOME_UNKNOWN"},
	{fmt.Errorf("%w: %w", kv.ErrUncertain, kv.ErrCorrupt), codes.DeadlineExceeded, "OUTCOME_UNKNOWN"},
	{fmt.Errorf("%w: %w", kv.ErrUncertain, kv.ErrConflict), codes.DeadlineExceeded, "OUTCOME_UNKNOWN"},
	{kv.ErrUncertain, codes.DeadlineExceeded, "OUTCOME_UNKNOWN"},
	{&kv.LateAttemptError{Known: 7}, codes.Aborted, "ATTEMPT_TOO_LATE"},
	{kv.ErrConditionFailed, codes.FailedPrecondition, "CONDITION_FAILED"},
	{&kv.ConditionError{Key: []byte("k"), Wanted: "absent", Found: true, Version: 7}, codes.FailedPrecondition, "CONDITION_FAILED"},
	{kv.ErrConflict, codes.Aborted, "CONFLICT"},
	{&kv.ConflictError{Key: []byte("k")}, codes.Aborted, "CONFLICT"},
	{kv.ErrReadOnly, codes.Unavailable, "READ_ONLY"},
	{kv.ErrFailed, codes.Unavailable, "STORE_FAILED"},
	{kv.ErrClosed, codes.Unavailable, "SHUTTING_DOWN"},
	{kv.ErrVersionGone, codes.OutOfRange, "VERSION_GONE"},
	{kv.ErrOtherOpening, codes.OutOfRange, "VERSION_GONE"},
	{kv.ErrVersionAhead, codes.OutOfRange, "VERSION_GONE"},
	{kv.Corruptf("p-0001/secret.sst", 7, "bad checksum"), codes.DataLoss, "CORRUPTION"},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
	{context.Canceled, codes.Canceled, "CANCELLED"},
	{errors.New("open /var/lib/secret: *os.PathError"), codes.Internal, "INTERNAL"},
}

// Each error has its code and reason, in unary calls and in frames, and tells
// nothing of what the store said.
func TestErrorsOfTheStoreAreTranslated(t *testing.T) {
	for _, test := range failures {
		t.Run(test.reason+" "+test.code.String(), func(t *testing.T) {
			store := servicetest.New(kv.DefaultLimits)
			wrapped := fmt.Errorf("read block of secret: %w", test.err)
			store.OnLookup = func(context.Context, []*kv.Lookup) error { return wrapped }
			store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
				writes[0].Err = wrapped
				return nil
			}
			f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
			ctx := testContext(t)

			_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k")})
			requireFailure(t, err, test.code, test.reason)
			assert.NotContains(t, status.Convert(err).Message(), "secret")
			_, err = f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}})
			requireFailure(t, err, test.code, test.reason)
			assert.NotContains(t, status.Convert(err).Message(), "secret")

			p := f.pipeline(t)
			for i, op := range []*kvdpb.PipelineRequest_Op{getOp(1, "k"), putOp(2, "k", "v")} {
				p.send(op)
				r := p.result()
				assert.EqualValues(t, i+1, r.Tag)
				assert.EqualValues(t, test.code, r.Status.GetCode())
				assert.Equal(t, test.reason, r.Status.GetReason())
				assert.NotContains(t, r.Status.GetMessage(), "secret")
			}
			p.close()
			assert.EqualValues(t, 1, f.requests("Get", test.code))
			assert.EqualValues(t, 1, f.requests("Put", test.code))
			assert.EqualValues(t, 1, f.requests("Pipeline.Get", test.code))
			assert.EqualValues(t, 1, f.requests("Pipeline.Put", test.code))
		})
	}
}

// A condition that failed names its key and what was found there, a conflict the
// key if it is known, and neither more than fits into a trailer.
func TestWhatATransactionMetIsNamed(t *testing.T) {
	var fails error
	store := servicetest.New(kv.DefaultLimits)
	store.OnApply = func(context.Context, *kv.WriteBatch) error { return fails }
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	long := make([]byte, 4096) // four bytes each in quotes
	for name, test := range map[string]struct {
		err      error
		reason   string
		metadata map[string]string
	}{
		"found":    {&kv.ConditionError{Key: []byte("a\x00"), Found: true, Version: 7}, "CONDITION_FAILED", map[string]string{"key": `"a\x00"`, "version": "7"}},
		"absent":   {&kv.ConditionError{Key: []byte("a")}, "CONDITION_FAILED", map[string]string{"key": `"a"`, "version": "0"}},
		"long":     {&kv.ConditionError{Key: long, Found: true, Version: 7}, "CONDITION_FAILED", map[string]string{"version": "7"}},
		"longest":  {&kv.ConflictError{Key: long[:255]}, "CONFLICT", map[string]string{"key": fmt.Sprintf("%q", long[:255])}},
		"longer":   {&kv.ConflictError{Key: long[:256]}, "CONFLICT", nil},
		"conflict": {&kv.ConflictError{Key: []byte("a")}, "CONFLICT", map[string]string{"key": `"a"`}},
		"no key":   {&kv.ConflictError{}, "CONFLICT", nil},
	} {
		t.Run(name, func(t *testing.T) {
			fails = test.err
			_, err := f.kv.Write(testContext(t), &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{put("k", "v")}})
			code := codes.Aborted
			if test.reason == "CONDITION_FAILED" {
				code = codes.FailedPrecondition
			}
			info, _ := requireFailure(t, err, code, test.reason)
			assert.Equal(t, test.metadata, info.Metadata)
		})
	}
}

// A node that does not lead says whether it knows which one does.
func TestARefusalSaysWhetherALeaderIsKnown(t *testing.T) {
	for leader, want := range map[uint64]map[string]string{0: nil, 2: {"cause": "elsewhere"}} {
		store := servicetest.New(kv.DefaultLimits)
		store.OnApply = func(context.Context, *kv.WriteBatch) error { return &kv.NotLeaderError{Leader: leader} }
		f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
		_, err := f.kv.Write(testContext(t), &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{put("k", "v")}})
		info, _ := requireFailure(t, err, codes.FailedPrecondition, "NOT_LEADER")
		assert.Equal(t, want, info.Metadata)
	}
}

func TestDoubtSaysWhy(t *testing.T) {
	for want, cause := range map[string]error{
		"time ran out; the write may or may not have happened":                        context.DeadlineExceeded,
		"the store stopped; the write may or may not have happened":                   kv.ErrFailed,
		"this node leads its cluster no more; the write may or may not have happened": &kv.NotLeaderError{},
		"the write may or may not have happened":                                      errors.New("the name is forgotten"),
	} {
		store := servicetest.New(kv.DefaultLimits)
		store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
			writes[0].Err = fmt.Errorf("%w: %w", kv.ErrUncertain, cause)
			return nil
		}
		f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
		_, err := f.kv.Put(testContext(t), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}})
		assert.Equal(t, want, status.Convert(err).Message())
	}
}

func TestOverloadSaysWhyAndWhenToComeBack(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	store.OnLookup = func(context.Context, []*kv.Lookup) error {
		return &kv.OverloadError{Reason: "inbox_full", RetryAfter: 70 * time.Millisecond}
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	_, err := f.kv.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
	info, retryAfter := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
	assert.Equal(t, "inbox_full", info.Metadata["cause"])
	assert.Equal(t, 70*time.Millisecond, retryAfter)

	p := f.pipeline(t)
	p.send(getOp(1, "k"))
	assert.EqualValues(t, 70, p.result().Status.GetRetryAfterMs())
	p.close()
	assert.EqualValues(t, 2, f.Stats().Shed["store"])
}

func TestAnAbsentKeySaysAsOfWhen(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.put(t, "a", "1")
	version := f.put(t, "a", "2")
	_, err := f.kv.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("b")})
	info, _ := requireFailure(t, err, codes.NotFound, "KEY_NOT_FOUND")
	assert.Equal(t, fmt.Sprint(version), info.Metadata["version"])

	p := f.pipeline(t)
	p.send(getOp(1, "b"))
	assert.Equal(t, version, p.result().Status.GetVersion())
	p.close()
}

// What the caller is not told, the server's log is, under the same id.
func TestHiddenErrorsAreReportedUnderARequestID(t *testing.T) {
	var mu sync.Mutex
	reported := map[string]string{}
	cause := errors.New("the cause")
	store := servicetest.New(kv.DefaultLimits)
	store.OnLookup = func(context.Context, []*kv.Lookup) error { return cause }
	f := start(t, store, func() *service.Server {
		return service.New(store, service.Options{ReportError: func(id, method string, err error) {
			mu.Lock()
			defer mu.Unlock()
			reported[id] = method + ": " + err.Error()
		}}, protocols...)
	})
	_, err := f.kv.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
	info, _ := requireFailure(t, err, codes.Internal, "INTERNAL")
	id := info.Metadata["request_id"]
	require.NotEmpty(t, id)
	assert.Contains(t, status.Convert(err).Message(), id)
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, map[string]string{id: "Get: the cause"}, reported)
}

// A panic fails its request; the process and the stream's other requests live.
func TestPanicsAreContained(t *testing.T) {
	var mu sync.Mutex
	var report string
	store := servicetest.New(kv.DefaultLimits)
	store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
		if string(reads[0].Key) == "panic" {
			panic("at the disco")
		}
		return nil
	}
	f := start(t, store, func() *service.Server {
		return service.New(store, service.Options{ReportError: func(_, _ string, err error) {
			mu.Lock()
			defer mu.Unlock()
			report = err.Error()
		}}, protocols...)
	})
	f.put(t, "k", "v")
	ctx := testContext(t)
	_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("panic")})
	requireFailure(t, err, codes.Internal, "INTERNAL")
	assert.NotContains(t, err.Error(), "disco")
	mu.Lock()
	assert.Contains(t, report, "at the disco")
	assert.True(t, strings.Contains(report, "errors_test.go"), "the report has the stack")
	mu.Unlock()

	p := f.pipeline(t)
	p.send(getOp(1, "panic"))
	assert.Equal(t, "INTERNAL", p.result().Status.GetReason())
	p.send(getOp(2, "k"))
	assert.Equal(t, "v", string(p.result().GetGet().GetItem().GetValue()))
	p.close()
	assert.EqualValues(t, 2, f.Stats().Panics)
}

// panicking is a store whose scans panic with memory for a value.
type panicking struct{ *servicetest.Store }

func (panicking) Scan(_ context.Context, _ kv.Range, o kv.ScanOptions) (service.Scanner, error) {
	o.Budget.Reset(1 << 20)
	o.Budget.Take(1 << 20)
	panic("with memory")
}

// What a call has reserved for values is given back after a panic, and after an answer once.
func TestAPanicGivesItsMemoryBack(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
		if string(reads[0].Key) == "panic" {
			reads[0].Budget.Take(1 << 20)
			panic("with memory")
		}
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(panicking{store}, service.Options{}, protocols...) })
	f.put(t, "k", strings.Repeat("v", 64<<10))
	testwait.Until(t, func() bool { return f.Memory().Used() == 0 }, "the transport has written the answer")
	ctx := testContext(t)
	for name, call := range map[string]func() error{
		"Get": func() error {
			_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("panic")})
			return err
		},
		"BatchGet": func() error {
			_, err := f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: [][]byte{[]byte("panic")}})
			return err
		},
		"Scan": func() error { return drain(f.kv.Scan(ctx, &kvdpb.ScanRequest{})) },
	} {
		before := f.Memory().Used()
		require.Equal(t, codes.Internal, status.Code(call()), name)
		assert.Equal(t, before, f.Memory().Used(), name)
	}
	value, found := f.get(t, "k", 0)
	require.True(t, found)
	require.Len(t, value, 64<<10)
	testwait.Until(t, func() bool { return f.Memory().Used() == 0 }, "likewise")
}
