package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/workload"
)

// tenths returns a span from one tenth of a second after t0 to another.
func tenths(t0 time.Time, begin, end int) peers.Span {
	const tenth = 100 * time.Millisecond
	return peers.Span{Begin: t0.Add(time.Duration(begin) * tenth), End: t0.Add(time.Duration(end) * tenth)}
}

func TestOverlappingMergesCoverASecondOnce(t *testing.T) {
	t0 := time.Now()
	at := func(begin, end int) peers.Span { return tenths(t0, begin, end) }
	merges := disjoint([]peers.Span{at(11, 13), at(12, 15), at(-5, 2), at(18, 40), at(12, 14), at(40, 41)})
	assert.Equal(t, []peers.Span{at(-5, 2), at(11, 15), at(18, 41)}, merges)
	seconds := make([]second, 3)
	ends := []time.Time{at(0, 10).End, at(0, 20).End, at(0, 30).End}
	noteMerging(seconds, ends, merges)
	assert.InDelta(t, 0.2, *seconds[0].Merging, 1e-9)
	assert.InDelta(t, 0.6, *seconds[1].Merging, 1e-9)
	assert.InDelta(t, 1, *seconds[2].Merging, 1e-9)
	noteMerging(seconds, ends, nil)
	assert.Zero(t, *seconds[1].Merging)
}

func TestWhatAMergeCoversInPartCountsAsNeither(t *testing.T) {
	t0 := time.Now()
	var beats []beat
	for i := range 21 { // ten operations in each tenth of a second
		beats = append(beats, beat{tenths(t0, 0, i).End, uint64(10 * i)})
	}
	merge := tenths(t0, 3, 12)
	merge.Begin = merge.Begin.Add(time.Millisecond)
	seconds := make([]second, 2)
	noteStretches(seconds, []time.Time{beats[10].at, beats[20].at}, beats, []peers.Span{merge})
	const tenth = 100 * time.Millisecond
	assert.Equal(t, stretch{30, 3 * tenth}, seconds[0].Quiet)
	assert.Equal(t, stretch{60, 6 * tenth}, seconds[0].While)
	assert.Equal(t, stretch{80, 8 * tenth}, seconds[1].Quiet)
	assert.Equal(t, stretch{20, 2 * tenth}, seconds[1].While)
}

// echo answers with the key.
type echo struct{ workload.Target }

var errEcho = errors.New("no puts")

func (echo) Put(context.Context, []byte, []byte) error                  { return errEcho }
func (echo) Delete(context.Context, []byte) error                       { return nil }
func (echo) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) { return key, true, nil }

func TestAPulseCountsEveryOperation(t *testing.T) {
	p := takePulse(echo{})
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 1000 {
				key := fmt.Appendf(nil, "%d%06d", worker, i)
				value, found, err := p.Get(t.Context(), key, nil)
				assert.Equal(t, key, value)
				assert.True(t, found)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	require.ErrorIs(t, p.Put(t.Context(), []byte("key"), nil), errEcho)
	require.NoError(t, p.Delete(t.Context(), []byte("key")))
	assert.Equal(t, uint64(4002), p.count())
	beats := p.end()
	require.NotEmpty(t, beats)
	for i := range beats[1:] {
		assert.LessOrEqual(t, beats[i].ops, beats[i+1].ops)
		assert.True(t, beats[i+1].at.After(beats[i].at))
	}
	assert.Len(t, p.end(), len(beats), "ended once more")
}
