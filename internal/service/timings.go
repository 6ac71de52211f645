package service

import (
	"context"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/trace"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// stage is where the time of a request goes in the server. Every moment of it
// belongs to one.
type stage int

const (
	stageGate stage = iota // taking the request apart, and waiting for room in the store
	stageInbox
	stageBatch
	stageEngine
	stageLogWrite
	stageSync
	stageReply // putting the answers together and sending them
	stageCount
)

// has reports whether requests of a kind have a stage.
func (s stage) has(k kind) bool {
	return k == writes || s != stageBatch && s != stageLogWrite && s != stageSync
}

var stageNames = [stageCount]string{"gate", "inbox", "batch", "engine", "log_write", "sync", "reply"}

// timings is where the time of one request went: of a group of a frame, or of a
// unary call that uses the store. Used by one goroutine.
//
// The store is entered at the moment when the request came, the first time, so what
// it does not account for itself is the gate's. That spares a look at the clock.
type timings struct {
	begun   time.Time // when the request had come
	entered time.Time // the store, the last time
	store   time.Duration
	stages  trace.Stages // of what is in store
	call    trace.Stages // of the call of the store that is under way
}

// enter begins a call of the store, which is to fill in what is returned.
func (t *timings) enter() *trace.Stages {
	if t.entered = t.begun; t.store > 0 {
		t.entered = time.Now()
	}
	t.call = trace.Stages{}
	return &t.call
}

// leave ends it.
func (t *timings) leave() {
	t.store += time.Since(t.entered)
	t.stages.Inbox += t.call.Inbox
	t.stages.Batch += t.call.Batch
	t.stages.Engine += t.call.Engine
	t.stages.LogWrite += t.call.LogWrite
	t.stages.Sync += t.call.Sync
}

// list returns the time of each stage, of a request that has taken so long in all.
func (t *timings) list(total time.Duration) [stageCount]time.Duration {
	s := &t.stages
	return [stageCount]time.Duration{
		stageGate:  max(t.store-s.Sum(), 0),
		stageInbox: s.Inbox, stageBatch: s.Batch, stageEngine: s.Engine,
		stageLogWrite: s.LogWrite, stageSync: s.Sync,
		stageReply: max(total-t.store, 0),
	}
}

// appendTo appends what an answer frame says of it.
func (t *timings) appendTo(all []uint64, total time.Duration) []uint64 {
	all = append(all, uint64(total), uint64(t.store)) // frame.TimingServer and TimingStore
	stages := t.list(total)
	for _, d := range stages[:stageReply] {
		all = append(all, uint64(d))
	}
	return all
}

// The stages of the store are sent in their order.
var _ = [1]struct{}{}[int(frame.TimingGate)+int(stageReply)-frame.TimingCount]

// stageTimes are the histograms of what requests took, in nanoseconds. One of them is
// 264 bytes.
type stageTimes [kindCount][stageCount]histogram.Powers

func (s *stageTimes) record(k kind, all *[stageCount]time.Duration) {
	for i, d := range all {
		if stage(i).has(k) {
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
		for i := range stageCount {
			if i.has(k) {
				all = append(all, StageTimes{kindNames[k], stageNames[i], s[k][i].Counts()})
			}
		}
	}
	return all
}

// timingsOf returns the timings of a unary call.
func timingsOf(ctx context.Context) *timings { return &callOf(ctx).time }

// finishCall is called when a unary call has its answer, and says in that where the
// time went, if the request asked. A call that did not come as far as the store is
// none.
func (s *Server) finishCall(c *call, req, answer any, err error) {
	if c.time.store == 0 {
		return
	}
	asked, ok := req.(interface{ GetOptions() *kvdpb.RequestOptions })
	if ok && err == nil && asked.GetOptions().GetWantTimings() {
		all := c.time.list(time.Since(c.time.begun))
		answer.(interface{ GetMeta() *kvdpb.ResponseMeta }).GetMeta().Timings = timingsMessage(&all)
	}
	s.finish(c, c.method, codeOf(err), &c.time, func() load { return loadOfRequest(req) })
}
