package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/workload"
)

// pulseEvery is the interval of counts: a small part of the shortest relevant
// compactions, which take some tens of milliseconds.
const pulseEvery = 10 * time.Millisecond

// beat is the number of operations that had ended at a time.
type beat struct {
	at  time.Time
	ops uint64
}

// pulse is a target that counts operations, to show what happens within a second. It
// costs some nanoseconds an operation. It does not support batches.
type pulse struct {
	workload.Target
	counters [pulseCounters]pulseCounter
	beats    []beat // owned by the goroutine until it ends
	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
}

// pulseCounters is so large that goroutines seldom use the same counter.
const pulseCounters = 64

type pulseCounter struct {
	n atomic.Uint64
	_ [56]byte // fills a cache line
}

// takePulse begins to count. The caller must call end.
func takePulse(t workload.Target) *pulse {
	p := &pulse{Target: t, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		ticker := time.NewTicker(pulseEvery)
		defer ticker.Stop()
		for {
			p.beats = append(p.beats, beat{time.Now(), p.count()})
			select {
			case <-ticker.C:
			case <-p.stop:
				return
			}
		}
	}()
	return p
}

// end stops counting and returns the beats, in order. It may be called again.
func (p *pulse) end() []beat {
	p.stopOnce.Do(func() { close(p.stop) })
	<-p.done
	return p.beats
}

func (p *pulse) count() (sum uint64) {
	for i := range p.counters {
		sum += p.counters[i].n.Load()
	}
	return sum
}

// ended counts an operation. Keys differ in their last digits.
func (p *pulse) ended(key []byte) {
	n := len(key)
	p.counters[(uint(key[n-1])+10*uint(key[n-2]))%pulseCounters].n.Add(1)
}

func (p *pulse) Put(ctx context.Context, key, value []byte) error {
	err := p.Target.Put(ctx, key, value)
	p.ended(key)
	return err
}

func (p *pulse) Delete(ctx context.Context, key []byte) error {
	err := p.Target.Delete(ctx, key)
	p.ended(key)
	return err
}

func (p *pulse) Get(ctx context.Context, key, buf []byte) (value []byte, found bool, err error) {
	value, found, err = p.Target.Get(ctx, key, buf)
	p.ended(key)
	return value, found, err
}
