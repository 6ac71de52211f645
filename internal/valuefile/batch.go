package valuefile

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
)

const (
	// joinGap is the largest gap of unneeded bytes between two values that one read
	// fetches, maxRunBytes bounds one such read, readDepth is how many reads of a batch
	// run at once, and slowRead distinguishes a read that waited for a disk from one that
	// the page cache served: all as in package sstable.
	joinGap     = 4 << 10
	maxRunBytes = 256 << 10
	readDepth   = 8
	slowRead    = 40 * time.Microsecond
)

// Fetch is one value to read.
type Fetch struct {
	Pointer kv.ValuePointer
	Value   []byte // overwritten, as by Reader.Read
	Err     error
}

// TimedRead is Read that also reports whether it waited for the disk.
func (s *Set) TimedRead(p kv.ValuePointer, buf []byte) (value []byte, waited bool, err error) {
	began := time.Now()
	value, err = s.Read(p, buf)
	return value, time.Since(began) > slowRead, err
}

// ReadBatch reads all values: file by file in the order of offsets, values that are close
// by one read, and separate reads concurrently if the disk is slow. Each fetch has its
// own error. It reports whether a read waited for the disk.
//
// Cost: up to seven goroutines besides the caller's, none unless two or more reads
// are needed and recent reads were slow.
func (s *Set) ReadBatch(fetches []Fetch) (waited bool) {
	if len(fetches) == 1 {
		f := &fetches[0]
		f.Value, waited, f.Err = s.TimedRead(f.Pointer, f.Value)
		return waited
	}
	order := make([]*Fetch, len(fetches))
	for i := range fetches {
		order[i] = &fetches[i]
	}
	slices.SortFunc(order, func(a, b *Fetch) int {
		return cmp.Or(cmp.Compare(a.Pointer.File, b.Pointer.File), cmp.Compare(a.Pointer.Offset, b.Pointer.Offset))
	})
	b := batch{set: s, runs: planRuns(order)}
	b.read()
	return b.waited.Load()
}

// planRuns joins fetches that are close to each other.
func planRuns(order []*Fetch) (runs [][]*Fetch) {
	first := 0
	for i := 1; i <= len(order); i++ {
		if i < len(order) {
			last, next := order[i-1].Pointer, order[i].Pointer
			near := next.File == last.File && next.Offset >= end(last) && next.Offset-end(last) <= joinGap
			if near && end(next)-order[first].Pointer.Offset <= maxRunBytes {
				continue
			}
		}
		runs = append(runs, order[first:i])
		first = i
	}
	return runs
}

// end returns where the record of p ends.
func end(p kv.ValuePointer) uint64 { return p.Offset + uint64(p.Length) + recordBytes }

// batch is one ReadBatch.
type batch struct {
	set  *Set
	runs [][]*Fetch
	next atomic.Int32 // index of the next run to execute

	waited atomic.Bool // a run was slow
}

// read executes the runs: concurrently, or one after the other while reads are fast.
func (b *batch) read() {
	for len(b.runs)-int(b.next.Load()) > 1 {
		if b.set.slow.Load() {
			b.readConcurrently()
			return
		}
		b.takeRun()
	}
	b.takeRun()
}

func (b *batch) readConcurrently() {
	takeAll := func() {
		for b.takeRun() {
		}
	}
	var helpers event.Helpers
	for range min(len(b.runs)-int(b.next.Load()), readDepth) - 1 {
		helpers.Go(takeAll)
	}
	takeAll()
	helpers.Wait()
}

// takeRun executes the next run, if one is left, and records whether it was slow.
func (b *batch) takeRun() bool {
	i := int(b.next.Add(1)) - 1
	if i >= len(b.runs) {
		return false
	}
	begin := time.Now()
	b.set.readRun(b.runs[i])
	slow := time.Since(begin) > slowRead
	if slow != b.set.slow.Load() {
		b.set.slow.Store(slow)
	}
	if slow {
		b.waited.Store(true)
	}
	return true
}

// readRun reads the values of a run, which are in one file.
func (s *Set) readRun(run []*Fetch) {
	file, err := s.acquire(run[0].Pointer.File)
	if err != nil {
		for _, f := range run {
			f.Err = err
		}
		return
	}
	if len(run) == 1 || !file.reader.readJoined(run) {
		for _, f := range run {
			f.Value, f.Err = file.reader.Read(f.Pointer, f.Value)
		}
	}
	if err := s.release(file); err != nil {
		for _, f := range run {
			f.Value, f.Err = nil, err
		}
	}
}

var runPool = sync.Pool{New: func() any { return new([maxRunBytes]byte) }}

// readJoined reads a run by one read. If the read fails it reports false: the error may
// concern a single value.
func (r *Reader) readJoined(run []*Fetch) bool {
	first, last := run[0].Pointer, run[len(run)-1].Pointer
	for _, f := range run {
		if r.check(f.Pointer) != nil {
			return false
		}
	}
	buf := runPool.Get().(*[maxRunBytes]byte)
	defer runPool.Put(buf)
	if r.readAt(buf[:end(last)-first.Offset], int64(first.Offset)) != nil {
		return false
	}
	for _, f := range run {
		sealed := buf[f.Pointer.Offset-first.Offset+lengthBytes:][:uint64(f.Pointer.Length)+checksumBytes]
		value, err := r.unseal(f.Pointer, sealed)
		f.Value, f.Err = append(f.Value[:0], value...), err
		if err != nil {
			f.Value = nil
		}
	}
	return true
}
