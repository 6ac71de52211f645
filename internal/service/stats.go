package service

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/admission"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/kv"
)

// Method is what requests are counted by, and named by in reports and the slow log.
type Method struct {
	name  string
	kind  Kind
	rule  Rule
	codes [codeCount]atomic.Uint64
}

// Method returns the method of a name, which every protocol may use. It is called when a
// protocol is made.
func (s *Server) Method(name string, k Kind, r Rule) *Method {
	s.methods.Lock()
	defer s.methods.Unlock()
	for _, m := range s.methods.all {
		if m.name == name {
			return m
		}
	}
	m := &Method{name: name, kind: k, rule: r}
	s.methods.all = append(s.methods.all, m)
	return m
}

// methods of all protocols.
type methods struct {
	sync.Mutex
	all []*Method
}

func (m *Method) String() string { return m.name }

// Kind returns what the store does for the method.
func (m *Method) Kind() Kind { return m.kind }

// Count counts requests that ended with a code.
func (m *Method) Count(code Code, n int) {
	if n == 0 {
		return
	}
	if int(code) >= codeCount {
		code = unknownCode
	}
	m.codes[code].Add(uint64(n))
}

// Shed is a reason for refusing work of which nothing was done.
type Shed int

const (
	noReason Shed = iota
	// ShedByStreams: too many calls are being served.
	ShedByStreams
	// ShedByBytes: there is no memory for the request.
	ShedByBytes
	shedByConnections
	shedByPeer
	shedByStore
	// ShedByWait: the request had not come, and others needed its place.
	ShedByWait
	// ShedByFlood: the connection made work and asked for nothing.
	ShedByFlood
	shedBySnapshots
	shedByQuota
	shedReasons
)

// Shed counts work that is refused, and returns the error for its client.
func (s *Server) Shed(reason Shed) *Error {
	s.counters.shed(reason)
	return ShedError(reason)
}

var shedNames = [shedReasons]string{"", "streams", "bytes", "connections", "peer_connections", "store", "idle_streams", "flood", "snapshots", "quota"}

// Outcomes of a Commit or Execute that the store evaluated.
const (
	txnCommit = iota
	txnConflict
	txnConditionFailed
	txnOutcomes
)

var txnNames = [txnOutcomes]string{"commit", "conflict", "condition_failed"}

const codeCount = len(codeNames)

// counters are what Stats reads. All are safe for concurrent use.
type counters struct {
	sheds  [shedReasons]atomic.Uint64
	txns   [txnOutcomes]atomic.Uint64
	panics atomic.Uint64
	// unauthenticated and denied count refusals for lack of an identity or a right.
	unauthenticated, denied atomic.Uint64
	connections             atomic.Int64
	accepted                atomic.Uint64
	frames                  histogram.Powers // of operations
	stages                  stageTimes
}

func (c *counters) shed(reason Shed) { c.sheds[reason].Add(1) }

// transaction counts a transaction by its outcome. One that the store did not evaluate, for
// lack of time or room, has none.
func (c *counters) transaction(err error) {
	switch {
	case err == nil:
		c.txns[txnCommit].Add(1)
	case errors.Is(err, kv.ErrUncertain):
	case errors.Is(err, kv.ErrConflict):
		c.txns[txnConflict].Add(1)
	case errors.Is(err, kv.ErrConditionFailed):
		c.txns[txnConditionFailed].Add(1)
	}
}

// CountFrame counts a request of several operations by their number.
func (s *Server) CountFrame(ops int) { s.counters.frames.Record(uint64(ops)) }

// Stats are counters since the server was made and gauges of now.
type Stats struct {
	// Requests counts finished requests. An operation of a pipeline is one, under
	// "Pipeline.Get" and the like; "Pipeline" itself counts streams, and
	// connections of raw frames.
	Requests []RequestCount
	// Shed counts refused connections, streams and frames, the operations that the
	// store refused, and the calls of the store that did not get there because their
	// queue was too slow ("queue_time") or full ("queue_full"), by reason.
	Shed map[string]uint64
	// Gates are what calls of the store pass, by kind: "reads", "writes", and
	// "cached_reads", for reads from memory while the one for reads is full.
	Gates map[string]admission.Stats
	// Transactions counts those of Commit and Execute that were evaluated, by outcome:
	// "commit", "conflict" or "condition_failed".
	Transactions map[string]uint64
	// Panics counts the handlers that panicked.
	Panics uint64
	// Unauthenticated counts what was refused because the client is not known, and Denied
	// what it may not do.
	Unauthenticated, Denied uint64
	// Quotas is what identities use of theirs.
	Quotas []auth.NamedUsage

	Streams int64 // calls by gRPC that are being served
	Bytes   int64 // what they, and frames, are charged for
	// Waiting counts what waits for its client: calls of which the request has not come,
	// long-lived streams, frames of which a part is there. WaitingBytes is what has come.
	Waiting, WaitingBytes int64
	Connections           int64 // open now
	Accepted              uint64
	// Raw and RawAccepted are the part of those connections that carry raw frames,
	// and RawFrames the frames that came by them.
	Raw                    int64
	RawAccepted, RawFrames uint64

	// Frames counts frames by their operations.
	Frames histogram.PowerCounts

	// Stages is where the time of requests went: batches of frames and unary calls, each
	// counted once.
	Stages []StageTimes
	// Slow counts the requests that took as long as the slow log wants.
	Slow uint64
}

// RequestCount is one counter of Stats.
type RequestCount struct {
	Method string
	Code   Code
	Count  uint64
}

// Stats returns a snapshot. Counters are read one by one, so their sums may
// differ by what happened meanwhile.
func (s *Server) Stats() Stats {
	c := &s.counters
	stats := Stats{
		Shed:         make(map[string]uint64, shedReasons),
		Gates:        make(map[string]admission.Stats, gateCount),
		Transactions: make(map[string]uint64, txnOutcomes),
		Panics:       c.panics.Load(),

		Unauthenticated: c.unauthenticated.Load(), Denied: c.denied.Load(),

		Streams:     int64(s.shares[shareOfCalls].total()),
		Bytes:       s.memory.Used(),
		Connections: c.connections.Load(),
		Accepted:    c.accepted.Load(),
		Frames:      c.frames.Counts(),
		Stages:      c.stages.counts(),
		Slow:        s.slow.count(),
	}
	if s.options.Auth != nil {
		stats.Quotas = s.options.Auth.Usages()
	}
	s.methods.Lock()
	all := s.methods.all
	s.methods.Unlock()
	for _, m := range all {
		for code := range m.codes {
			if n := m.codes[code].Load(); n > 0 {
				stats.Requests = append(stats.Requests, RequestCount{m.name, Code(code), n})
			}
		}
	}
	for _, p := range s.demux.protocols {
		if source, ok := p.(StatsSource); ok {
			source.AddStats(&stats)
		}
	}
	for _, w := range s.waits {
		waiting := w.stats()
		stats.Waiting += int64(waiting.count)
		stats.WaitingBytes += waiting.bytes
	}
	for i, name := range shedNames {
		if Shed(i) == noReason {
			continue
		}
		stats.Shed[name] = c.sheds[i].Load()
	}
	for k, gate := range s.store.gates {
		g := gate.Stats()
		stats.Gates[kindNames[k]] = g
		stats.Shed[admission.QueueTime] += g.RefusedLate
		stats.Shed[admission.QueueFull] += g.RefusedFull
	}
	for i, name := range txnNames {
		stats.Transactions[name] = c.txns[i].Load()
	}
	return stats
}
