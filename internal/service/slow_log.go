package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// slowKeyBytes is how much of a key the slow log keeps: enough to tell whose it is.
const slowKeyBytes = 32

// slowLog keeps the newest requests that took at least as long as a threshold, in a
// ring. A request that was fast costs a comparison; a slow one takes the lock for as
// long as it takes to copy it. It never has a value in it.
type slowLog struct {
	threshold time.Duration // 0: nothing is kept
	size      int           // of the ring
	hideKeys  bool

	mu struct {
		sync.Mutex
		ring  []slowRequest // the request with id n is at (n-1) % size
		total uint64        // the newest id
		kept  int           // how many of the newest are still listed
	}
}

// slowRequest is an entry of the slow log.
type slowRequest struct {
	id     uint64
	begun  time.Time
	method method
	code   codes.Code
	peer   string
	key    []byte // its first bytes
	load
	stages [stageCount]time.Duration
	total  time.Duration
}

// load is what a request asks for.
type load struct {
	firstKey []byte // borrowed from the request
	keyBytes int    // of the first key
	ops      int
	bytes    int // of all keys, and of values to write
}

// add counts an operation in.
func (l *load) add(key []byte, valueBytes int) {
	if l.ops == 0 {
		l.firstKey, l.keyBytes = key, len(key)
	}
	l.ops++
	l.bytes += len(key) + valueBytes
}

func newSlowLog(o *Options) *slowLog {
	return &slowLog{threshold: o.SlowTime, size: o.SlowEntries, hideKeys: o.SlowHideKeys}
}

// takes reports whether a request that took so long belongs into the log.
func (l *slowLog) takes(total time.Duration) bool { return l.threshold > 0 && total >= l.threshold }

// add puts a request into the log in place of the oldest. What it borrows is copied.
func (l *slowLog) add(r slowRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := int(l.mu.total % uint64(l.size))
	if at == len(l.mu.ring) {
		l.mu.ring = append(l.mu.ring, slowRequest{})
	}
	key := l.mu.ring[at].key[:0]
	if !l.hideKeys {
		key = append(key, r.firstKey[:min(len(r.firstKey), slowKeyBytes)]...)
	}
	r.key, r.firstKey = key, nil
	l.mu.total++
	l.mu.kept = min(l.mu.kept+1, l.size)
	r.id = l.mu.total
	l.mu.ring[at] = r
}

// list returns up to limit requests, the newest first, and how many there were since
// the start.
func (l *slowLog) list(limit int) (newest []slowRequest, total uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range min(limit, l.mu.kept) {
		r := l.mu.ring[(l.mu.total-1-uint64(i))%uint64(l.size)]
		r.key = slices.Clone(r.key)
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

// finish is called when a request that has used the store was answered. It counts
// what that took; loadOf is asked if that was long.
func (s *Server) finish(ctx context.Context, m method, code codes.Code, t *timings, loadOf func() load) {
	total := time.Since(t.begun)
	stages := t.list(total)
	s.counters.stages.record(kindOf(m), &stages)
	if s.slow.takes(total) {
		s.slow.add(slowRequest{
			begun: t.begun, method: m, code: code, peer: peerName(ctx),
			load: loadOf(), stages: stages, total: total,
		})
	}
}

// peerName is where a call came from.
func peerName(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// loadOfRequest is what a unary call asks for.
func loadOfRequest(req any) (l load) {
	switch r := req.(type) {
	case *kvdpb.GetRequest:
		l.add(r.Key, 0)
	case *kvdpb.PutRequest:
		l.add(r.GetItem().GetKey(), len(r.GetItem().GetValue()))
	case *kvdpb.DeleteRequest:
		l.add(r.Key, 0)
	case *kvdpb.DeleteRangeRequest:
		l.addRange(r.Range)
	case *kvdpb.BatchGetRequest:
		l.addKeys(r.Keys)
	case *kvdpb.WriteRequest:
		l.addMutations(r.Mutations)
	case *kvdpb.CommitRequest:
		l.addMutations(r.Mutations)
		l.addKeys(r.ReadKeys)
		for _, read := range r.ReadRanges {
			l.addRange(read)
		}
	case *kvdpb.ExecuteRequest:
		for _, g := range r.Guards {
			l.add(g.GetKey(), 0)
		}
		l.addMutations(r.ThenMutations)
		l.addMutations(r.ElseMutations)
	}
	return l
}

func (l *load) addKeys(keys [][]byte) {
	for _, key := range keys {
		l.add(key, 0)
	}
}

func (l *load) addRange(r *kvdpb.Range) { l.add(r.GetStart(), len(r.GetEnd())) }

func (l *load) addMutations(mutations []*kvdpb.Mutation) {
	for _, m := range mutations {
		if r, ok := m.GetOp().(*kvdpb.Mutation_DeleteRange); ok {
			l.addRange(r.DeleteRange)
			continue
		}
		change := changeOf(m)
		l.add(change.Key, len(change.Value))
	}
}
