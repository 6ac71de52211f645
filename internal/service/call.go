package service

import (
	"time"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

// Stage is where the time of a request goes in the server. Every moment of it
// belongs to one.
type Stage int

// The stages, in the order in which a request comes to them.
const (
	StageGate Stage = iota // taking the request apart, and waiting for room in the store
	StageInbox
	StageBatch
	StageEngine
	StageLogWrite
	StageSync
	StageReply // putting the answers together and sending them
	StageCount
)

// has reports whether requests of a kind have a stage.
func (s Stage) has(k Kind) bool {
	return k == Writes || s != StageBatch && s != StageLogWrite && s != StageSync
}

var stageNames = [StageCount]string{"gate", "inbox", "batch", "engine", "log_write", "sync", "reply"}

func (s Stage) String() string { return stageNames[s] }

// Times is how long a request was in each stage.
type Times [StageCount]time.Duration

// Call is one request that uses the store: its memory, and where its time went. A request
// is what the store serves in one go: a batch of a frame, or a unary call. The zero value
// with Begun set is ready. Used by one goroutine.
//
// The store is entered at the moment when the request came, the first time, so what
// it does not account for itself is the gate's. That spares a look at the clock.
type Call struct {
	Begun time.Time // when the request had come
	Caller
	Session *auth.Session // what its client has shown of itself; nil: nothing, or it was judged elsewhere
	Charged int           // bytes of the request, as Server.Charge took them
	// Budget bounds what the request reads. Its owner charges it to Server.Memory.
	Budget kv.ReadBudget
	// Held is what is reserved of Server.Memory for the request itself.
	Held int64
	// PeerEpoch is that of the store of the node that forwarded the request; 0: it came from
	// its client.
	PeerEpoch uint64

	meter   callMeter // of Budget
	entered time.Time // the store, the last time
	store   time.Duration
	stages  trace.Stages // of what is in store
	current trace.Stages // of the call of the store that is under way
}

// enter begins a call of the store, which is to fill in what is returned.
func (c *Call) enter() *trace.Stages {
	if c.entered = c.Begun; c.store > 0 {
		c.entered = time.Now()
	}
	c.current = trace.Stages{}
	c.metered()
	return &c.current
}

// leave ends it.
func (c *Call) leave() {
	c.store += time.Since(c.entered)
	c.stages.Inbox += c.current.Inbox
	c.stages.Batch += c.current.Batch
	c.stages.Engine += c.current.Engine
	c.stages.LogWrite += c.current.LogWrite
	c.stages.Sync += c.current.Sync
}

// Elsewhere counts a call of the store of another node, which perform makes. It returns where the
// time went there; the way there and back counts as the gate's.
func (c *Call) Elsewhere(perform func() trace.Stages) {
	stages := c.enter()
	*stages = perform()
	c.leave()
}

// Stages returns where the store spent the time of the request.
func (c *Call) Stages() trace.Stages { return c.stages }

// Store returns how long the store had the request, with the wait for room in it. Zero:
// the request did not come as far as the store.
func (c *Call) Store() time.Duration { return c.store }

// Times returns the time of each stage, of a request that has taken so long in all.
func (c *Call) Times(total time.Duration) Times {
	s := &c.stages
	return Times{
		StageGate:  max(c.store-s.Sum(), 0),
		StageInbox: s.Inbox, StageBatch: s.Batch, StageEngine: s.Engine,
		StageLogWrite: s.LogWrite, StageSync: s.Sync,
		StageReply: max(total-c.store, 0),
	}
}

// stageTimes are the histograms of what requests took, in nanoseconds. One of them is
// 264 bytes.
type stageTimes [kindCount][StageCount]histogram.Powers

func (s *stageTimes) record(k Kind, all *Times) {
	for i, d := range all {
		if Stage(i).has(k) {
			s[k][i].Record(uint64(d))
		}
	}
}

// StageTimes is what the requests of one kind took in one stage.
type StageTimes struct {
	Kind, Stage string
	Nanos       histogram.PowerCounts
}

func (s *stageTimes) counts() (all []StageTimes) {
	for k := range kindCount {
		for i := range StageCount {
			if i.has(k) {
				all = append(all, StageTimes{kindNames[k], stageNames[i], s[k][i].Counts()})
			}
		}
	}
	return all
}
