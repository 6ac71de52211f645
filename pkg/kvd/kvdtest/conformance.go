package kvdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// Conformance checks that a store keeps the promises of package kvd: reads, writes,
// conditions, batches, transactions, snapshots, scans, pipelines, expiry, limits, timings, arguments,
// errors, and closing; each is a subtest. Last come random calls against a model. open returns a
// new, empty store for each subtest, and has the test close what is around it; closing the
// store itself is part of the tests and may be done twice.
//
// It knows nothing of an engine. What it tests can be
//
//   - a server of the protocol, whatever it is written in: start one in open and return
//     kvd.Open of its address;
//   - a store in this process: return that of embed.Open or embed.Memory;
//   - a wrapper: a type that embeds a kvd.Store and changes some of its methods. Its
//     transactions and pipelines are those of the store inside.
//
// The limits are expected to be the defaults: keys of 4 KiB, values of 4 MiB, batches and
// transactions of 4,096 operations and 8 MiB.
func Conformance(t *testing.T, open func(t *testing.T) kvd.Store) {
	for _, area := range []struct {
		name  string
		cases []conformanceCase
	}{
		{"read", readCases},
		{"write", writeCases},
		{"condition", conditionCases},
		{"batch", batchCases},
		{"execute", executeCases},
		{"scan", scanCases},
		{"snapshot", snapshotCases},
		{"transaction", transactionCases},
		{"pipeline", pipelineCases},
		{"expiry", expiryCases},
		{"limit", limitCases},
		{"timing", timingCases},
		{"argument", argumentCases},
		{"lifetime", lifetimeCases},
		{"history", historyCases},
	} {
		t.Run(area.name, func(t *testing.T) {
			for _, c := range area.cases {
				t.Run(c.name, func(t *testing.T) {
					s := &suite{T: t, Store: open(t)}
					defer func() { s.ok(s.Close()) }()
					c.test(s)
				})
			}
		})
	}
}

// conformanceCase is one promise.
type conformanceCase struct {
	name string
	test func(s *suite)
}

// suite is a store under test.
type suite struct {
	*testing.T
	kvd.Store
}

func (s *suite) ctx() context.Context { return s.T.Context() }

// ok ends the test after an error.
func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("unexpected error: %v", err)
	}
}

// is ends the test unless err matches want and is a *kvd.Error, which it returns.
func (s *suite) is(err, want error) *kvd.Error {
	s.Helper()
	e, ok := errors.AsType[*kvd.Error](err)
	if !errors.Is(err, want) || !ok {
		s.Fatalf("got error %v (%T), want a *kvd.Error that matches %q", err, err, want)
	}
	return e
}

// equal compares two values as they are printed.
func (s *suite) equal(got, want any) {
	s.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		s.Fatalf("got %.500s, want %.500s", g, w)
	}
}

func (s *suite) that(holds bool, what string, args ...any) {
	s.Helper()
	if !holds {
		s.Fatalf("it does not hold that "+what, args...)
	}
}

// put puts pairs of a key and a value.
func (s *suite) put(pairs ...string) {
	s.Helper()
	for i := 0; i < len(pairs); i += 2 {
		s.ok(s.Put(s.ctx(), []byte(pairs[i]), []byte(pairs[i+1])))
	}
}

// absent is what get returns for an absent key.
const absent = "-"

func (s *suite) get(r kvd.Reader, key string) string {
	s.Helper()
	value, err := r.Get(s.ctx(), []byte(key))
	if errors.Is(err, kvd.ErrNotFound) {
		return absent
	}
	s.ok(err)
	return string(value)
}

func (s *suite) item(r kvd.Reader, key string) kvd.Item {
	s.Helper()
	item, err := r.GetItem(s.ctx(), []byte(key))
	s.ok(err)
	return item
}

// all returns what a scan yields: key=value, separated by spaces.
func (s *suite) all(r kvd.Reader, over kvd.Range, opts ...kvd.ScanOption) string {
	s.Helper()
	var items []string
	for item, err := range r.Scan(s.ctx(), over, opts...) {
		s.ok(err)
		items = append(items, fmt.Sprintf("%s=%s", item.Key, item.Value))
	}
	return strings.Join(items, " ")
}

// scanError returns the error that a scan ends with.
func (s *suite) scanError(r kvd.Reader, over kvd.Range, opts ...kvd.ScanOption) error {
	s.Helper()
	for _, err := range r.Scan(s.ctx(), over, opts...) {
		if err != nil {
			return err
		}
	}
	return nil
}

// ended is a context that has ended.
func (s *suite) ended() context.Context {
	ctx, cancel := context.WithCancel(s.ctx())
	cancel()
	return ctx
}

// calls are calls of every kind on a reader and, where r is one, a writer.
func calls(r kvd.Reader) map[string]func(context.Context) error {
	k := []byte("k")
	all := map[string]func(context.Context) error{
		"get":      func(ctx context.Context) error { _, err := r.Get(ctx, k); return err },
		"get item": func(ctx context.Context) error { _, err := r.GetItem(ctx, k); return err },
		"get many": func(ctx context.Context) error { _, err := r.GetMany(ctx, [][]byte{k}); return err },
		"scan": func(ctx context.Context) error {
			for _, err := range r.Scan(ctx, kvd.All()) {
				return err
			}
			return nil
		},
	}
	if w, ok := r.(kvd.Writer); ok {
		all["put"] = func(ctx context.Context) error { return w.Put(ctx, k, nil) }
		all["delete"] = func(ctx context.Context) error { return w.Delete(ctx, k) }
		all["delete range"] = func(ctx context.Context) error { return w.DeleteRange(ctx, kvd.All()) }
	}
	return all
}

// storeCalls are calls, and those that only a store has.
func (s *suite) storeCalls() map[string]func(context.Context) error {
	k := []byte("k")
	all := calls(s.Store)
	all["put item"] = func(ctx context.Context) error { _, err := s.PutItem(ctx, k, nil); return err }
	all["delete item"] = func(ctx context.Context) error { _, err := s.DeleteItem(ctx, k); return err }
	all["apply"] = func(ctx context.Context) error { _, err := s.Apply(ctx, new(kvd.Batch).Put(k, nil)); return err }
	all["execute"] = func(ctx context.Context) error {
		_, err := s.Execute(ctx, kvd.Execution{Then: new(kvd.Batch).Put(k, nil)})
		return err
	}
	all["pipeline"] = func(ctx context.Context) error {
		p := s.Pipeline()
		p.Put(k, nil)
		return p.Do(ctx)
	}
	all["snapshot"] = func(ctx context.Context) error { _, err := s.Snapshot(ctx); return err }
	all["view"] = func(ctx context.Context) error { return s.View(ctx, func(*kvd.Snapshot) error { return nil }) }
	all["update"] = func(ctx context.Context) error {
		return s.Update(ctx, func(tx *kvd.Txn) error { return tx.Put(ctx, k, nil) })
	}
	all["ping"] = s.Ping
	return all
}

func filled(n int, c byte) []byte { return bytes.Repeat([]byte{c}, n) }
