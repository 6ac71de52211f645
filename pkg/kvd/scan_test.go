package kvd

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
)

// fill writes n keys with values of some bytes.
func fill(t *testing.T, db *Client, n, valueBytes int) {
	t.Helper()
	var b Batch
	for i := range n {
		b.Put(fmt.Appendf(nil, "k%04d", i), make([]byte, valueBytes))
	}
	_, err := db.Apply(context.Background(), &b)
	require.NoError(t, err)
}

func TestPrefix(t *testing.T) {
	for prefix, end := range map[string]string{
		"a": "b", "a\xff": "b", "a\xff\xff": "b", "ab": "ac", "": "", "\xff": "", "\xff\xff": "", "\xfe\xff": "\xff",
	} {
		p := []byte(prefix)
		r := Prefix(p)
		for i := range p {
			p[i] = 'x' // it is not kept
		}
		assert.Equal(t, prefix, string(r.Start))
		assert.Equal(t, end, string(r.End), "%q", prefix)
	}
}

// Leaving the loop ends the scan at the server too.
func TestAScanMayBeLeftEarly(t *testing.T) {
	c := serve(t, nil, service.Options{})
	db := c.open(t)
	fill(t, db, 3000, 1000)
	for item, err := range db.Scan(context.Background(), All()) {
		require.NoError(t, err)
		if string(item.Key) == "k0010" {
			break
		}
	}
	testwait.Until(t, func() bool { return c.server.Stats().Streams == 0 })
}

// The items before an error are yielded, then the error, once; the scan is not
// begun anew, since that would be another version.
func TestAnErrorIsYieldedLast(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	scans := 0
	store.OnScan = func(_ context.Context, item *kv.Item) error {
		if string(item.Key) == "k0000" {
			scans++
		}
		if string(item.Key) == "k1500" {
			return kv.ErrOverloaded
		}
		return nil
	}
	db := serve(t, store, service.Options{}).open(t)
	fill(t, db, 2000, 1)
	items, failures := 0, 0
	for _, err := range db.Scan(context.Background(), All()) {
		if err != nil {
			require.ErrorIs(t, err, ErrOverloaded)
			failures++
			continue
		}
		require.Zero(t, failures)
		items++
	}
	assert.Equal(t, 1000, items, "the second chunk was lost")
	assert.Equal(t, 1, failures)
	assert.Equal(t, 1, scans)
}

// Before the first item a scan is tried again like any read.
func TestAScanThatWasShedIsTriedAgain(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	scans := 0
	store.OnScan = func(_ context.Context, item *kv.Item) error {
		if scans++; scans < 3 {
			return kv.ErrOverloaded
		}
		return nil
	}
	db := serve(t, store, service.Options{}).open(t)
	fill(t, db, 1, 1)
	for _, err := range db.Scan(context.Background(), All()) {
		require.NoError(t, err)
	}
	assert.Equal(t, 3, scans)
}

// The timeout is for each chunk: a slow loop does not hit it, a server that
// stands still does. The caller's context ends a scan too.
func TestTheTimeoutOfAScan(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	store.OnScan = func(ctx context.Context, item *kv.Item) error {
		if string(item.Key) == "k1200" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	c := serve(t, store, service.Options{})
	fill(t, c.open(t), 1500, 1)
	scan := func(db *Client, timeout time.Duration) (items int, last error) {
		for _, err := range db.Scan(context.Background(), All()) {
			if items == 0 {
				time.Sleep(2 * timeout) // a slow loop
			}
			if last = err; err == nil {
				items++
			}
		}
		return items, last
	}
	var db *Client
	items, last := 0, error(nil)
	// A machine that is busy may take longer for a chunk: it gets more time.
	for timeout := 250 * time.Millisecond; items < 1000; timeout *= 2 {
		db = c.open(t, WithTimeout(timeout))
		items, last = scan(db, timeout)
		require.ErrorIs(t, last, context.DeadlineExceeded)
	}
	assert.Equal(t, 1000, items)

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	for _, err := range db.Scan(ctx, All()) {
		last = err
		cancel(assert.AnError)
	}
	require.ErrorIs(t, last, context.Canceled)
}
