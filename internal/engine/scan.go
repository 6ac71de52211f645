package engine

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/mergeiter"
)

// Scanner walks a range in key order, over all partitions, at one version.
// Used by one goroutine at a time.
type Scanner struct {
	e       *Engine
	ctx     context.Context
	bounds  kv.Range
	opts    kv.ScanOptions
	at      kv.SeqNum
	release func()

	merged kv.Iterator // nil before the first Next and at the end
	opened time.Time
	item   kv.Item
	count  uint64
	err    error
	closed bool
}

// refreshAfter is how long a Scanner holds on to the same files. After that it
// opens new iterators where it stands, at the same version, so that a slow
// reader does not keep files that compaction has replaced.
const refreshAfter = time.Second

// Scan returns a Scanner over a range, at a version that holds every write
// acknowledged before the call. It must be closed; until then compaction keeps
// the versions that it can see. ctx ends the scan when it ends.
func (e *Engine) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (*Scanner, error) {
	if e.closed.Load() {
		return nil, kv.ErrClosed
	}
	at, release, err := e.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	bounds := kv.Range{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End)}
	return &Scanner{e: e, ctx: ctx, bounds: bounds, opts: o, at: at, release: release}, nil
}

// Next moves to the next item. It returns false at the end, at the limit, and on
// an error: see Err.
func (s *Scanner) Next() bool {
	if s.err != nil || s.closed || (s.opts.Limit > 0 && s.count == s.opts.Limit) {
		return false
	}
	if s.count%256 == 0 {
		if s.err = s.ctx.Err(); s.err != nil {
			return false
		}
	}
	var more bool
	if s.merged == nil || (s.count%256 == 0 && time.Since(s.opened) > refreshAfter) {
		more = s.reopen()
	} else {
		more = s.merged.Next()
	}
	if !more {
		if s.merged != nil {
			s.fail(s.merged.Err())
		}
		return false
	}
	entry := s.merged.Entry()
	s.item = kv.Item{Key: entry.Key, Version: entry.Seq, Expiry: entry.Expiry}
	if !s.opts.KeysOnly {
		s.item.Value = entry.Value
	}
	s.count++
	return true
}

// reopen opens iterators and moves to the first item, or to the one behind the
// item that the Scanner stands on.
func (s *Scanner) reopen() bool {
	start := s.bounds.Start
	if s.merged != nil {
		start = append(bytes.Clone(s.item.Key), 0) // the least key behind it
		if s.fail(s.merged.Close()); s.err != nil {
			return false
		}
	}
	sources := make([]kv.Iterator, len(s.e.partitions))
	for i, p := range s.e.partitions {
		sources[i] = p.NewIterator(s.at)
	}
	s.merged = mergeiter.Bounded(mergeiter.New(sources...), kv.Range{Start: start, End: s.bounds.End})
	s.opened = time.Now()
	return s.merged.First()
}

func (s *Scanner) fail(err error) {
	if err == nil || s.err != nil {
		return
	}
	s.err = err
	if errors.Is(err, kv.ErrCorrupt) {
		s.e.corrupt(err)
	}
}

// Item returns the current item, borrowed until Next or Close.
func (s *Scanner) Item() *kv.Item { return &s.item }

// Version returns the version that the scan reads.
func (s *Scanner) Version() kv.SeqNum { return s.at }

// Err returns why Next returned false, nil at the end of the range.
func (s *Scanner) Err() error { return s.err }

// Close releases what the scan holds. Idempotent.
func (s *Scanner) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.merged != nil {
		err = s.merged.Close()
	}
	s.release()
	return err
}
