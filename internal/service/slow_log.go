package service

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// slowKeyBytes is how much of a key the slow log keeps: enough to recognise it.
const slowKeyBytes = 32

// slowLog keeps, in a ring, the newest requests that took at least a threshold. A fast
// request costs a comparison; a slow one holds the lock while it is copied. The log has no
// values.
type slowLog struct {
	threshold atomic.Int64 // nanoseconds; 0: nothing is kept
	hideKeys  atomic.Bool
	size      int // of the ring

	mu struct {
		sync.Mutex
		ring  []SlowRequest // the request with id n is at (n-1) % size
		total uint64        // the newest id
		kept  int           // how many of the newest are still listed
	}
}

// SlowRequest is an entry of the slow log.
type SlowRequest struct {
	ID     uint64
	Begun  time.Time
	Method *Method
	Code   Code
	Peer   string
	Key    []byte // its first bytes
	Load
	Times Times
	Total time.Duration
}

// Load is what a request asks for.
type Load struct {
	firstKey []byte // borrowed from the request
	KeyBytes int    // of the first key
	Ops      int
	Bytes    int // of all keys, and of values to write
}

// Add counts an operation in.
func (l *Load) Add(key []byte, valueBytes int) {
	if l.Ops == 0 {
		l.firstKey, l.KeyBytes = key, len(key)
	}
	l.Ops++
	l.Bytes += len(key) + valueBytes
}

func newSlowLog(o *Options) *slowLog {
	l := &slowLog{size: o.SlowEntries}
	l.set(o.SlowTime, o.SlowHideKeys)
	return l
}

func (l *slowLog) set(threshold time.Duration, hideKeys bool) {
	l.threshold.Store(int64(threshold))
	l.hideKeys.Store(hideKeys)
}

// takes reports whether a request that took this long belongs in the log.
func (l *slowLog) takes(total time.Duration) bool {
	threshold := time.Duration(l.threshold.Load())
	return threshold > 0 && total >= threshold
}

// add puts a request into the log in place of the oldest. What it borrows is copied.
func (l *slowLog) add(r SlowRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := int(l.mu.total % uint64(l.size))
	if at == len(l.mu.ring) {
		l.mu.ring = append(l.mu.ring, SlowRequest{})
	}
	key := l.mu.ring[at].Key[:0]
	if !l.hideKeys.Load() {
		key = append(key, r.firstKey[:min(len(r.firstKey), slowKeyBytes)]...)
	}
	r.Key, r.firstKey = key, nil
	l.mu.total++
	l.mu.kept = min(l.mu.kept+1, l.size)
	r.ID = l.mu.total
	l.mu.ring[at] = r
}

// list returns up to limit requests, the newest first, and how many there were since
// the start.
func (l *slowLog) list(limit int) (newest []SlowRequest, total uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range min(limit, l.mu.kept) {
		r := l.mu.ring[(l.mu.total-1-uint64(i))%uint64(l.size)]
		r.Key = slices.Clone(r.Key)
		newest = append(newest, r)
	}
	return newest, l.mu.total
}

// clear empties the log. Ids go on.
func (l *slowLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.kept = 0
}

func (l *slowLog) count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.total
}

// Finish is called when a request that has used the store was answered. It counts
// what that took; loadOf is asked if that was long.
func (s *Server) Finish(conn *Conn, m *Method, code Code, c *Call, loadOf func() Load) {
	total := time.Since(c.Begun)
	times := c.Times(total)
	s.counters.stages.record(m.kind, &times)
	if s.slow.takes(total) {
		s.slow.add(SlowRequest{
			Begun: c.Begun, Method: m, Code: code, Peer: conn.Name(),
			Load: loadOf(), Times: times, Total: total,
		})
	}
}

// SlowRequests returns up to limit requests of the slow log, the newest first, how many
// there were since the start, and from how long on a request is kept; 0: none is.
func (s *Server) SlowRequests(limit int) (newest []SlowRequest, total uint64, threshold time.Duration) {
	newest, total = s.slow.list(limit)
	return newest, total, time.Duration(s.slow.threshold.Load())
}

// SetSlowLog changes Options.SlowTime and Options.SlowHideKeys of a running server. Requests
// that are kept already stay as they are.
func (s *Server) SetSlowLog(threshold time.Duration, hideKeys bool) { s.slow.set(threshold, hideKeys) }

// ClearSlowRequests empties the slow log. Ids go on.
func (s *Server) ClearSlowRequests() { s.slow.clear() }
