package main

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/peers"
)

// shelf is a store with entries chosen by the test, correct or not.
type shelf struct {
	entries []peers.Entry
	err     error        // of every cursor, at its end
	open    atomic.Int64 // cursors
}

func (s *shelf) Load(entries []peers.Entry) error {
	for _, e := range entries {
		s.entries = append(s.entries, peers.Entry{Key: slices.Clone(e.Key), Value: slices.Clone(e.Value)})
	}
	return nil
}

func (s *shelf) Settle() error {
	slices.SortFunc(s.entries, func(a, b peers.Entry) int { return slices.Compare(a.Key, b.Key) })
	return nil
}

func (s *shelf) Forward(from []byte, visit peers.Visit) error {
	i, _ := slices.BinarySearchFunc(s.entries, from, func(e peers.Entry, key []byte) int { return slices.Compare(e.Key, key) })
	return peers.Walk(s.cursor(s.entries[i:]), nil)(visit)
}

func (s *shelf) Backward(visit peers.Visit) error {
	reversed := slices.Clone(s.entries)
	slices.Reverse(reversed)
	return peers.Walk(s.cursor(reversed), nil)(visit)
}

func (s *shelf) cursor(left []peers.Entry) *shelfCursor {
	s.open.Add(1)
	return &shelfCursor{shelf: s, left: left}
}

func (s *shelf) Close() error { return nil }

type shelfCursor struct {
	shelf *shelf
	entry peers.Entry
	left  []peers.Entry
}

func (c *shelfCursor) Next() bool {
	if len(c.left) == 0 {
		return false
	}
	c.entry, c.left = c.left[0], c.left[1:]
	return true
}

func (c *shelfCursor) Entry() (key, value []byte) { return c.entry.Key, c.entry.Value }
func (c *shelfCursor) Err() error                 { return c.shelf.err }

func (c *shelfCursor) Close() error {
	c.shelf.open.Add(-1)
	return nil
}

var tasks = []task{
	{Shape: shapeForward},
	{Shape: shapeBackward},
	{Shape: shapeShort, Scans: 2000, Seed: 1},
	{Shape: shapePair, Scans: 2000, Seed: 1},
}

func loadShelf(t *testing.T, d dataset) *shelf {
	t.Helper()
	var s shelf
	require.NoError(t, d.load(s.Load))
	require.NoError(t, s.Settle())
	return &s
}

func TestRightAnswersPass(t *testing.T) {
	for _, order := range []string{orderRandom, orderSorted} {
		for _, keys := range []int{1, 49, 310} {
			d := dataset{Keys: keys, ValueBytes: 20, Order: order}
			require.NoError(t, d.validate())
			s := loadShelf(t, d)
			for _, task := range tasks {
				r, err := perform(t.Context(), s, d, task)
				require.NoError(t, err, "%d keys: %s", keys, task.Shape)
				assert.Positive(t, r.Elapsed)
				if !task.Shape.isShort() {
					assert.Equal(t, keys, r.Entries, task.Shape)
				}
			}
			assert.Zero(t, s.open.Load(), "cursors left open")
		}
	}
}

func TestWrongAnswersAreNoticed(t *testing.T) {
	d := dataset{Keys: 310, ValueBytes: 20, Order: orderRandom}
	for name, spoil := range map[string]func(s *shelf){
		"an entry is missing":         func(s *shelf) { s.entries = slices.Delete(s.entries, 150, 151) },
		"the first one is missing":    func(s *shelf) { s.entries = s.entries[1:] },
		"the last one is missing":     func(s *shelf) { s.entries = s.entries[:309] },
		"an entry comes twice":        func(s *shelf) { s.entries = slices.Insert(s.entries, 150, s.entries[150]) },
		"two are out of order":        func(s *shelf) { s.entries[7], s.entries[8] = s.entries[8], s.entries[7] },
		"a value is short":            func(s *shelf) { s.entries[7].Value = s.entries[7].Value[:19] },
		"a value begins as another":   func(s *shelf) { s.entries[7].Value[0]++ },
		"a value ends as another":     func(s *shelf) { s.entries[7].Value[19]++ },
		"the end is that of an error": func(s *shelf) { s.err = assert.AnError },
	} {
		t.Run(name, func(t *testing.T) {
			for _, task := range tasks {
				s := loadShelf(t, d)
				spoil(s)
				_, err := perform(t.Context(), s, d, task)
				require.Error(t, err, task.Shape)
				require.Zero(t, s.open.Load(), "cursors left open")
			}
		})
	}
	t.Run("there is one too many", func(t *testing.T) {
		s := loadShelf(t, dataset{Keys: 311, ValueBytes: 20, Order: orderRandom})
		for _, task := range tasks {
			_, err := perform(t.Context(), s, d, task)
			require.ErrorContains(t, err, "wrong answer", task.Shape)
		}
	})
}

func TestKeysCountUpAndDown(t *testing.T) {
	var key, want [keyBytes]byte
	putKey(key[:], 98)
	for n := 99; n < 1102; n++ {
		increment(key[:])
		putKey(want[:], n)
		require.Equal(t, string(want[:]), string(key[:]))
	}
	for n := 1100; n >= 0; n-- {
		decrement(key[:])
		putKey(want[:], n)
		require.Equal(t, string(want[:]), string(key[:]))
	}
	decrement(key[:])
	increment(key[:])
	require.Equal(t, "0000000000000000", string(key[:]))
}
