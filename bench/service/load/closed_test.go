package load

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// store is a correct target, unless spoil changes its answers.
type store struct {
	mu     sync.Mutex
	values map[string][]byte
	spoil  func(value []byte) []byte
	delay  func()
}

func newStore(t *testing.T, keys uint64, valueBytes int) *store {
	s := &store{values: make(map[string][]byte), spoil: func(v []byte) []byte { return v }, delay: func() {}}
	require.NoError(t, Fill(t.Context(), s, keys, valueBytes, 3))
	return s
}

func (s *store) Get(_ context.Context, key []byte) ([]byte, error) {
	s.delay()
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found := s.values[string(key)]
	if !found {
		return nil, errors.New("absent")
	}
	return s.spoil(value), nil
}

func (s *store) Set(_ context.Context, key, value []byte) error {
	s.delay()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[string(key)] = append([]byte(nil), value...)
	return nil
}

func (s *store) GetMany(ctx context.Context, keys [][]byte, visit func(int, []byte) error) error {
	for i, key := range keys {
		value, err := s.Get(ctx, key)
		if err == nil {
			err = visit(i, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func testClosed() Closed {
	return Closed{Callers: 8, GetPercent: 50, Keys: 100, ValueBytes: 40, Seed: 1, Warmup: 5 * time.Millisecond, Duration: 50 * time.Millisecond}
}

func TestCallersGetWhatTheySet(t *testing.T) {
	c := testClosed()
	require.NoError(t, c.Validate())
	s := newStore(t, c.Keys, c.ValueBytes)
	var told []bool
	o, err := c.Run(t.Context(), []Target{s, s}, func(begins bool) { told = append(told, begins) })
	require.NoError(t, err)
	assert.Equal(t, []bool{true, false}, told)
	assert.Len(t, s.values, int(c.Keys), "the same keys as were filled in")
	assert.NotZero(t, o.Gets.Count)
	assert.NotZero(t, o.Sets.Count)
	assert.Equal(t, o.Gets.Count+o.Sets.Count, o.Keys)
	assert.GreaterOrEqual(t, o.Seconds, c.Duration.Seconds())
	assert.LessOrEqual(t, o.Gets.Nanos.P50, o.Gets.Nanos.P99)
	assert.Positive(t, o.Sets.Nanos.Max)
}

func TestABatchCountsItsKeys(t *testing.T) {
	c := testClosed()
	c.GetPercent, c.Batch = 100, 16
	o, err := c.Run(t.Context(), []Target{newStore(t, c.Keys, c.ValueBytes)}, func(bool) {})
	require.NoError(t, err)
	assert.NotZero(t, o.Gets.Count)
	assert.Equal(t, 16*o.Gets.Count, o.Keys)
}

func TestWrongAnswersEndARun(t *testing.T) {
	other := make([]byte, 40)
	NewValues(40).Fill(other, 1000, 0)
	for name, spoil := range map[string]func([]byte) []byte{
		"of another key": func([]byte) []byte { return other },
		"too short":      func(v []byte) []byte { return v[:39] },
		"none":           func([]byte) []byte { return nil },
		"damaged": func(v []byte) []byte {
			v = append([]byte(nil), v...)
			v[39]++
			return v
		},
		"damaged number": func(v []byte) []byte {
			v = append([]byte(nil), v...)
			v[9]++
			return v
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, batch := range []int{1, 4} {
				c := testClosed()
				c.GetPercent, c.Batch = 100, batch
				s := newStore(t, c.Keys, c.ValueBytes)
				s.spoil = spoil
				_, err := c.Run(t.Context(), []Target{s}, func(bool) {})
				require.ErrorIs(t, err, ErrWrongAnswer)
			}
		})
	}
}

func TestAnErrorEndsARun(t *testing.T) {
	c := testClosed()
	c.Duration = time.Hour
	s := newStore(t, c.Keys-1, c.ValueBytes) // the last key is missing
	c.GetPercent = 100
	_, err := c.Run(t.Context(), []Target{s}, func(bool) {})
	require.ErrorContains(t, err, "get: absent")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Run(ctx, []Target{newStore(t, c.Keys, c.ValueBytes)}, func(bool) {})
	require.ErrorIs(t, err, context.Canceled)
}

func TestLoadsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Closed){
		"no callers":      func(c *Closed) { c.Callers = 0 },
		"too many gets":   func(c *Closed) { c.GetPercent = 101 },
		"no keys":         func(c *Closed) { c.Keys = 0 },
		"small values":    func(c *Closed) { c.ValueBytes = MinValueBytes - 1 },
		"large batches":   func(c *Closed) { c.GetPercent, c.Batch = 100, 101 },
		"batches of sets": func(c *Closed) { c.Batch = 2 },
		"no time":         func(c *Closed) { c.Duration = 0 },
		"unknown sets":    func(c *Closed) { c.Sets = "sideways" },
		"shared keys":     func(c *Closed) { c.Sets = IfVersion },
		"too many keys":   func(c *Closed) { c.OwnKeys = 13 },
		"own batches":     func(c *Closed) { c.GetPercent, c.Batch, c.OwnKeys = 100, 2, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := testClosed()
			spoil(&c)
			require.Error(t, c.Validate())
		})
	}
}

func TestKeysDifferAndHaveTheirLength(t *testing.T) {
	seen := make(map[[KeyBytes]byte]bool)
	for id := range uint64(10_000) {
		var key [KeyBytes]byte
		PutKey(key[:], id)
		assert.False(t, seen[key])
		assert.NotContains(t, string(key[:]), "\x00")
		seen[key] = true
	}
}

func TestTheGeneratorCostsSomething(t *testing.T) {
	for _, batch := range []int{1, 16} {
		c := testClosed()
		c.GetPercent, c.Batch = 100, batch
		cost, err := Cost(t.Context(), c)
		require.NoError(t, err)
		assert.Positive(t, cost)
	}
}
