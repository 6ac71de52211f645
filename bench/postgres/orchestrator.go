package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// query reads the rows of several keys. The result has the payload of each key that was
// found. Duplicate keys are allowed.
type query func(ctx context.Context, keys []string) (map[string][]byte, error)

// policy says how an orchestrator makes batches.
type policy struct {
	size    int           // reads of a full batch
	linger  time.Duration // how long the first read of a batch waits for others
	workers int           // batches that are executed at a time
}

// orchestrator answers the reads of many callers by statements for several keys each, as
// the article's program does: one goroutine gathers reads until the batch is full or its
// first read has waited for linger, and workers execute the batches.
//
// I1. Every read that was accepted is answered once, also if its statement failed.
// I2. No batch has more reads than its policy allows.
// I3. At most workers batches wait for a worker; then readers wait.
type orchestrator struct {
	policy
	query   query
	reads   chan read
	batches chan []read
	ended   sync.WaitGroup

	statements, batched atomic.Uint64 // executed, and the reads of those
}

// read is a call that waits for an answer.
type read struct {
	key    string
	answer chan<- answer // has room for one answer
}

type answer struct {
	payload []byte
	err     error
}

// newOrchestrator starts an orchestrator; Close ends it. Statements end with ctx.
func newOrchestrator(ctx context.Context, p policy, q query) *orchestrator {
	o := &orchestrator{policy: p, query: q, reads: make(chan read, 1), batches: make(chan []read, p.workers)}
	o.ended.Go(o.gather)
	for range p.workers {
		o.ended.Go(func() {
			for batch := range o.batches {
				o.execute(ctx, batch)
			}
		})
	}
	return o
}

// gather forms batches until there are no more reads.
func (o *orchestrator) gather() {
	defer close(o.batches)
	timer := time.NewTimer(o.linger)
	timer.Stop()
	var batch []read
	send := func() {
		timer.Stop()
		o.batches <- batch
		batch = nil
	}
	for {
		select {
		case r, more := <-o.reads:
			if !more {
				if len(batch) > 0 {
					send()
				}
				return
			}
			if batch == nil {
				batch = make([]read, 0, o.size)
				timer.Reset(o.linger)
			}
			if batch = append(batch, r); len(batch) == o.size {
				send()
			}
		case <-timer.C:
			send()
		}
	}
}

// execute answers the reads of a batch.
func (o *orchestrator) execute(ctx context.Context, batch []read) {
	keys := make([]string, len(batch))
	for i := range batch {
		keys[i] = batch[i].key
	}
	found, err := o.query(ctx, keys)
	o.statements.Add(1)
	o.batched.Add(uint64(len(batch)))
	for _, r := range batch {
		a := answer{err: err}
		if err == nil {
			var ok bool
			if a.payload, ok = found[r.key]; !ok {
				a.err = errAbsent
			}
		}
		r.answer <- a
	}
}

// newReader returns a reader whose reads join batches.
func (o *orchestrator) newReader() reader {
	answers := make(chan answer, 1)
	return func(ctx context.Context, key []byte) ([]byte, error) {
		select {
		case o.reads <- read{string(key), answers}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case a := <-answers:
			return a.payload, a.err
		case <-ctx.Done():
			answers = make(chan answer, 1) // the answer that was given up may still come
			return nil, ctx.Err()
		}
	}
}

// readsPerStatement returns the mean size of the batches that were executed; 0 without
// any.
func (o *orchestrator) readsPerStatement() float64 {
	n := o.statements.Load()
	if n == 0 {
		return 0
	}
	return float64(o.batched.Load()) / float64(n)
}

// Close answers the reads that were accepted and ends all goroutines. No reader may be
// called at the same time or later.
func (o *orchestrator) Close() error {
	close(o.reads)
	o.ended.Wait()
	return nil
}
