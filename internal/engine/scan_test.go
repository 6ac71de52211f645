package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// scanAll returns a range as "key=value", and calls between after each item.
func scanAll(t require.TestingT, e *Engine, r kv.Range, o kv.ScanOptions, between func(*Scanner)) []string {
	s, err := e.Scan(context.Background(), r, o)
	require.NoError(t, err)
	items := []string{}
	for s.Next() {
		items = append(items, fmt.Sprintf("%s=%s", s.Item().Key, s.Item().Value))
		between(s)
	}
	require.NoError(t, s.Err())
	require.False(t, s.Next(), "the end is the end")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	return items
}

// growOld makes a Scanner open new iterators before it reads on.
func growOld(s *Scanner) {
	for i := range s.feed.sources {
		c := &s.feed.sources[i]
		c.mu.Lock()
		c.opened = c.opened.Add(-2 * refreshAfter)
		c.mu.Unlock()
	}
}

// In either direction a scan gives its range, with other iterators at any point
// of its way, and whatever is written, flushed and merged meanwhile.
func TestScanGivesItsRangeInBothDirections(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	var want []string
	for i := range 600 {
		put(t, e, key(i), fmt.Sprint("old", i), memory)
		want = append(want, fmt.Sprintf("%s=old%d", key(i), i))
		if i%200 == 100 {
			require.NoError(t, e.Flush(t.Context()))
		}
	}
	snapshot := begin(t, e, longLease)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, 600).Draw(t, "from")
		to := rapid.IntRange(0, 600).Draw(t, "to")
		limit := rapid.SampledFrom([]int{0, 0, 1, 7, 8, 9, 100}).Draw(t, "limit")
		reverse := rapid.Bool().Draw(t, "reverse")
		r := kv.Range{Start: []byte(key(from)), End: []byte(key(to))}
		expect := []string{}
		if from < to {
			expect = slices.Clone(want[from:to])
		}
		if rapid.Bool().Draw(t, "open") {
			r, expect = kv.Range{}, slices.Clone(want)
		}
		if reverse {
			slices.Reverse(expect)
		}
		if limit > 0 {
			expect = expect[:min(limit, len(expect))]
		}
		refresh := rapid.SampledFrom([]int{1, 3, 100, 1000}).Draw(t, "refresh every")
		n := 0
		got := scanAll(t, e, r, kv.ScanOptions{At: snapshot.Version, Limit: uint64(limit), Reverse: reverse}, func(s *Scanner) {
			if n++; n%refresh != 0 {
				return
			}
			growOld(s)
			if n%2 == 0 {
				s.restIfDue(time.Now()) // as the maintenance loop does
			}
			round++
			_, err := e.Put(context.Background(), []byte(key(round%600)), []byte("new"), memory)
			require.NoError(t, err)
			if round%100 == 0 {
				require.NoError(t, e.CompactAll(context.Background()))
			}
		})
		require.Equal(t, expect, got)
	})
}

func TestKeysOnlyScanHasNoValues(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "a", "1", memory)
	put(t, e, "b", "", memory)
	for _, reverse := range []bool{false, true} {
		s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{KeysOnly: true, Reverse: reverse})
		require.NoError(t, err)
		n := 0
		for ; s.Next(); n++ {
			assert.Nil(t, s.Item().Value)
			assert.NotZero(t, s.Item().Version)
		}
		assert.Equal(t, 2, n)
		require.NoError(t, s.Close())
	}
	s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	for s.Next() {
		assert.NotNil(t, s.Item().Value, "an empty value is a value")
	}
	require.NoError(t, s.Close())
}

// Large values make small chunks.
func TestScanReadsAheadWithinBounds(t *testing.T) {
	e := open(t, Options{FS: vfs.NewMem(), Partitions: 2, LowDiskBytes: 1})
	for i := range 100 {
		put(t, e, key(i), strings.Repeat("v", 20<<10), memory)
	}
	s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	n := 0
	for ; s.Next(); n++ {
		require.Len(t, s.Item().Value, 20<<10)
		for i := range s.feed.sources {
			c := &s.feed.sources[i]
			c.mu.Lock()
			for j := range c.batches {
				require.LessOrEqual(t, len(c.batches[j].Data), batchBytes+21<<10)
			}
			c.mu.Unlock()
		}
	}
	require.Equal(t, 100, n)
	require.NoError(t, s.Close())
}

// An idle scan holds neither files nor memtables, and continues at its position.
func TestIdleScanHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, small(vfs.NewMem()))
		for i := range 100 {
			put(t, e, key(i), "v", memory)
		}
		s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
		require.NoError(t, err)
		for i := range 100 {
			require.True(t, s.Next())
			require.Equal(t, key(i), string(s.Item().Key))
			if i == 50 {
				time.Sleep(3 * time.Second)
				for i := range s.feed.sources {
					c := &s.feed.sources[i]
					c.mu.Lock()
					require.False(t, c.open)
					c.mu.Unlock()
				}
			}
		}
		require.False(t, s.Next())
		require.NoError(t, s.Err())
		require.NoError(t, s.Close())
		require.Empty(t, e.scans.list())
	})
}

func TestCloseEndsScans(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	for i := range 100 {
		put(t, e, key(i), "v", memory)
	}
	s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	require.True(t, s.Next())
	require.NoError(t, e.Close())
	for s.Next() {
	}
	require.ErrorIs(t, s.Err(), kv.ErrClosed)
	require.NoError(t, s.Close())
}

func TestScanEndsWithItsContext(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	for i := range 100 {
		put(t, e, key(i), "v", memory)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := e.Scan(ctx, kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	require.True(t, s.Next())
	cancel()
	for s.Next() {
	}
	require.ErrorIs(t, s.Err(), context.Canceled)
	require.NoError(t, s.Close())
}
