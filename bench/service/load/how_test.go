package load

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// comparingStore is a store with conditional sets and transactions, which come one after
// the other.
type comparingStore struct {
	*store
	versions map[string]uint64
	other    func() // called before each condition is judged
}

func newComparingStore(t *testing.T, c Closed) *comparingStore {
	return &comparingStore{store: newStore(t, c.Keys, c.ValueBytes), versions: make(map[string]uint64), other: func() {}}
}

func (s *comparingStore) Update(ctx context.Context, key, value []byte, check func([]byte) error) error {
	old, err := s.Get(ctx, key)
	if err == nil {
		err = check(old)
	}
	if err != nil {
		return err
	}
	return s.Set(ctx, key, value)
}

func (s *comparingStore) GetVersion(ctx context.Context, key []byte) ([]byte, uint64, error) {
	value, err := s.Get(ctx, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return value, s.versions[string(key)], err
}

var errConflict = errors.New("conflict")

func (s *comparingStore) SetIfVersion(_ context.Context, key, value []byte, version uint64) (uint64, error) {
	s.other()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.versions[string(key)] != version {
		return 0, errConflict
	}
	s.versions[string(key)]++
	s.values[string(key)] = bytes.Clone(value)
	return version + 1, nil
}

func (s *comparingStore) SetIfValue(_ context.Context, key, value, old []byte) error {
	s.other()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(s.values[string(key)], old) {
		return errConflict
	}
	s.values[string(key)] = bytes.Clone(value)
	return nil
}

func ownClosed(how How) Closed {
	c := testClosed()
	c.GetPercent, c.OwnKeys, c.Sets = 0, 4, how
	return c
}

func TestSetsDependOnWhatTheCallerSetBefore(t *testing.T) {
	for _, how := range []How{IfVersion, IfValue, Plain} {
		c := ownClosed(how)
		require.NoError(t, c.Validate())
		s := newComparingStore(t, c)
		o, err := c.Run(t.Context(), []Target{s}, func(bool) {})
		require.NoError(t, err, how)
		assert.NotZero(t, o.Sets.Count, how)
		var first [KeyBytes]byte
		PutKey(first[:], uint64(c.Callers*c.OwnKeys))
		value, err := s.Get(t.Context(), first[:])
		require.NoError(t, err)
		untouched := make([]byte, c.ValueBytes)
		NewValues(c.ValueBytes).Fill(untouched, uint64(c.Callers*c.OwnKeys), 0)
		assert.Equal(t, untouched, value, "%s: no caller has this key", how)
	}
}

func TestAConditionThatDoesNotHoldEndsARun(t *testing.T) {
	for _, how := range []How{IfVersion, IfValue} {
		c := ownClosed(how)
		// Of several callers, one could read what the other has set before its own first set.
		c.Callers, c.Duration = 1, time.Hour
		s := newComparingStore(t, c)
		s.other = func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			for key := range s.values {
				s.versions[key] += 2
				s.values[key] = []byte("of another")
			}
		}
		_, err := c.Run(t.Context(), []Target{s}, func(bool) {})
		require.ErrorIs(t, err, errConflict, how)
	}
}

func TestAnUpdateChecksWhatItReads(t *testing.T) {
	c := testClosed()
	c.Sets = Updates
	s := newComparingStore(t, c)
	o, err := c.Run(t.Context(), []Target{s}, func(bool) {})
	require.NoError(t, err)
	assert.NotZero(t, o.Sets.Count)

	c.GetPercent = 0
	s.spoil = func(v []byte) []byte { return v[1:] }
	_, err = c.Run(t.Context(), []Target{s}, func(bool) {})
	require.ErrorIs(t, err, ErrWrongAnswer)
}

func TestATargetMustKnowHowToSet(t *testing.T) {
	for _, how := range []How{Updates, IfVersion, IfValue} {
		c := ownClosed(how)
		_, err := c.Run(t.Context(), []Target{newStore(t, c.Keys, c.ValueBytes)}, func(bool) {})
		require.ErrorContains(t, err, "the target has no", how)
		cost, err := Cost(t.Context(), c)
		require.NoError(t, err, how)
		assert.Positive(t, cost, how)
	}
}
