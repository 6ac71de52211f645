package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// backend answers statements after a while, and records them.
type backend struct {
	takes time.Duration
	fail  error // of the next statement

	mu      sync.Mutex
	batches [][]string
	running int
	most    int // statements at a time
}

func (b *backend) query(_ context.Context, keys []string) (map[string][]byte, error) {
	b.mu.Lock()
	b.batches = append(b.batches, keys)
	b.running++
	b.most = max(b.most, b.running)
	err := b.fail
	b.fail = nil
	b.mu.Unlock()
	time.Sleep(b.takes)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if err != nil {
		return nil, err
	}
	found := make(map[string][]byte)
	for _, k := range keys {
		if k != "absent" {
			found[k] = []byte("payload of " + k)
		}
	}
	return found, nil
}

const linger = 500 * time.Microsecond

// orchestrated calls do with an orchestrator in a bubble of synthetic time, and closes it.
func orchestrated(t *testing.T, p policy, b *backend, do func(t *testing.T, o *orchestrator)) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrchestrator(t.Context(), p, b.query)
		do(t, o)
		require.NoError(t, o.Close())
	})
}

// readAll reads each of the keys in a goroutine of its own, and returns the answers.
func readAll(o *orchestrator, keys ...string) []answer {
	answers := make([]answer, len(keys))
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() { answers[i].payload, answers[i].err = o.newReader()(context.Background(), []byte(key)) })
	}
	all.Wait()
	return answers
}

func TestALoneReadWaitsForOthersAndNoLonger(t *testing.T) {
	orchestrated(t, policy{16, linger, 2}, &backend{takes: time.Millisecond}, func(t *testing.T, o *orchestrator) {
		began := time.Now()
		payload, err := o.newReader()(t.Context(), []byte("a"))
		require.NoError(t, err)
		assert.Equal(t, "payload of a", string(payload))
		assert.Equal(t, linger+time.Millisecond, time.Since(began))
	})
}

func TestAFullBatchIsSentAtOnce(t *testing.T) {
	b := &backend{takes: time.Millisecond}
	orchestrated(t, policy{3, time.Hour, 2}, b, func(t *testing.T, o *orchestrator) {
		began := time.Now()
		for i, a := range readAll(o, "a", "b", "c", "d", "e", "f") {
			require.NoError(t, a.err)
			assert.Equal(t, "payload of "+string("abcdef"[i]), string(a.payload))
		}
		assert.Equal(t, time.Millisecond, time.Since(began), "two batches at the same time")
		assert.InDelta(t, 3, o.readsPerStatement(), 0)
	})
	assert.Len(t, b.batches, 2)
}

func TestEqualKeysOfABatchAreAllAnsweredAndAbsentOnesAreErrors(t *testing.T) {
	b := &backend{}
	orchestrated(t, policy{4, linger, 1}, b, func(t *testing.T, o *orchestrator) {
		answers := readAll(o, "a", "a", "absent", "b")
		for i, want := range []string{"payload of a", "payload of a", "", "payload of b"} {
			assert.Equal(t, want, string(answers[i].payload))
		}
		require.ErrorIs(t, answers[2].err, errAbsent)
		for _, i := range []int{0, 1, 3} {
			require.NoError(t, answers[i].err)
		}
	})
	assert.Len(t, b.batches, 1)
}

func TestAFailedStatementFailsItsReadsAndNoOthers(t *testing.T) {
	lost := errors.New("connection lost")
	orchestrated(t, policy{2, linger, 1}, &backend{fail: lost}, func(t *testing.T, o *orchestrator) {
		for _, a := range readAll(o, "a", "b") {
			require.ErrorIs(t, a.err, lost)
		}
		for _, a := range readAll(o, "a", "b") {
			require.NoError(t, a.err)
		}
	})
}

// TestReadersWaitForBusyWorkers: one batch is executed, one waits for the worker, one is
// held by the orchestrator, and one read is in its queue. All others are with their readers.
func TestReadersWaitForBusyWorkers(t *testing.T) {
	b := &backend{takes: time.Second}
	orchestrated(t, policy{2, linger, 1}, b, func(t *testing.T, o *orchestrator) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, err := o.newReader()(context.Background(), fmt.Append(nil, i))
				assert.NoError(t, err)
			})
		}
		time.Sleep(time.Millisecond)
		b.mu.Lock()
		assert.Len(t, b.batches, 1)
		b.mu.Unlock()
		assert.Len(t, o.batches, 1)
		assert.Len(t, o.reads, 1)
		all.Wait()
	})
	assert.Len(t, b.batches, 10)
	assert.Equal(t, 1, b.most)
}

func TestTheAnswerOfAReadThatWasGivenUpIsNotThatOfTheNext(t *testing.T) {
	orchestrated(t, policy{1, linger, 1}, &backend{takes: time.Second}, func(t *testing.T, o *orchestrator) {
		read := o.newReader()
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := read(impatient, []byte("a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		payload, err := read(t.Context(), []byte("b"))
		require.NoError(t, err)
		assert.Equal(t, "payload of b", string(payload))
	})
}

func TestCloseAnswersTheBatchThatIsNotFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrchestrator(t.Context(), policy{16, time.Hour, 1}, new(backend).query)
		began := time.Now()
		answered := make(chan error)
		go func() {
			_, err := o.newReader()(context.Background(), []byte("a"))
			answered <- err
		}()
		synctest.Wait() // the read is in the batch
		go func() { assert.NoError(t, o.Close()) }()
		require.NoError(t, <-answered)
		assert.Zero(t, time.Since(began))
		synctest.Wait()
	})
}

// TestNoReadIsLeftWhenTheTimerAndAFullBatchCoincide: readers come back exactly when the
// batch of the others has lingered.
func TestNoReadIsLeftWhenTheTimerAndAFullBatchCoincide(t *testing.T) {
	b := &backend{takes: linger}
	orchestrated(t, policy{3, linger, 2}, b, func(t *testing.T, o *orchestrator) {
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				read := o.newReader()
				for n := range 50 {
					key := fmt.Sprintf("%d of %d", n, i)
					payload, err := read(context.Background(), []byte(key))
					assert.NoError(t, err)
					assert.Equal(t, "payload of "+key, string(payload))
				}
			})
		}
		all.Wait()
	})
	reads := 0
	for _, batch := range b.batches {
		assert.LessOrEqual(t, len(batch), 3)
		reads += len(batch)
	}
	assert.Equal(t, 500, reads)
}
