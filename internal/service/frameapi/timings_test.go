package frameapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/trace"
)

// slowStore is a store whose calls take the time that it says.
type slowStore struct {
	servicetest.LimitsOnly
	takes trace.Stages
}

func (s *slowStore) take(stages *trace.Stages) {
	time.Sleep(s.takes.Sum())
	*stages = s.takes
}

func (s *slowStore) Lookup(_ context.Context, reads []*kv.Lookup) error {
	s.take(reads[0].Stages)
	return nil
}

func (s *slowStore) LookupAt(_ context.Context, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error) {
	s.take(reads[0].Stages)
	return at, nil
}

func (s *slowStore) Write(_ context.Context, writes []*kv.Write) error {
	s.take(writes[0].Stages)
	return nil
}

// slowTransport takes its time to send, and keeps what was said of the time.
type slowTransport struct {
	Transport
	takes   time.Duration
	timings [][]uint64
}

func (c *slowTransport) Send(r *frame.Response, _ *ReceiveToken) {
	time.Sleep(c.takes)
	c.timings = append(c.timings, append([]uint64(nil), r.Timings...))
}

// LookupCached has the answer to the first of several reads, and to no single one.
func (s *slowStore) LookupCached(reads []*kv.Lookup) ([]*kv.Lookup, error) {
	if len(reads) == 1 {
		return reads, nil
	}
	s.take(reads[0].Stages)
	return reads[1:], nil
}

// pipelineOf returns a pipeline of a connection of its own.
func pipelineOf(t *testing.T, s *service.Server, c Transport) *Pipeline {
	return &Pipeline{transport: c, frames: newFrames(s), ctx: service.WithConn(t.Context(), service.NewConn(s, nil))}
}

// counted returns the sums of the histograms of a kind, and how many requests were
// counted.
func counted(t *testing.T, s *service.Server, kind string) (sums map[string]time.Duration, requests uint64) {
	sums = make(map[string]time.Duration)
	for i, stage := range s.Stats().Stages {
		if stage.Kind != kind {
			continue
		}
		sums[stage.Stage] = time.Duration(stage.Nanos.Sum)
		if len(sums) > 1 {
			require.Equal(t, requests, stage.Nanos.Count(), "%d: every stage of a request is counted", i)
		}
		requests = stage.Nanos.Count()
	}
	return sums, requests
}

func nanos(all ...time.Duration) (list []uint64) {
	for _, d := range all {
		list = append(list, uint64(d))
	}
	return list
}

// Time in a bubble passes only where it is said to, so every stage is exact.
func TestEveryMomentOfAFrameIsInAStage(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		frame  frame.Request
		takes  trace.Stages
		kind   string
		sent   [][]uint64
		stages map[string]time.Duration
	}{
		"reads": {
			frame:  frame.Request{Timed: true, Ops: []frame.Op{{Kind: frame.Get, Key: []byte("k")}, {Tag: 1, Kind: frame.Get, Key: []byte("l")}}},
			takes:  trace.Stages{Inbox: 2 * s, Engine: 3 * s},
			kind:   "reads",
			sent:   [][]uint64{nanos(6*s, 6*s, 1*s, 2*s, 0, 3*s, 0, 0)},
			stages: map[string]time.Duration{"gate": 1 * s, "inbox": 2 * s, "engine": 3 * s, "reply": 10 * s},
		},
		"reads at one version": {
			frame:  frame.Request{Timed: true, OneVersion: true, Ops: []frame.Op{{Kind: frame.Get, Key: []byte("k")}}},
			takes:  trace.Stages{Inbox: 2 * s, Engine: 3 * s},
			kind:   "reads",
			sent:   [][]uint64{nanos(6*s, 6*s, 1*s, 2*s, 0, 3*s, 0, 0)},
			stages: map[string]time.Duration{"gate": 1 * s, "inbox": 2 * s, "engine": 3 * s, "reply": 10 * s},
		},
		"writes": {
			frame:  frame.Request{Timed: true, Ops: []frame.Op{{Kind: frame.Put, Key: []byte("k")}}},
			takes:  trace.Stages{Inbox: 2 * s, Batch: 3 * s, Engine: 4 * s, LogWrite: 5 * s, Sync: 6 * s},
			kind:   "writes",
			sent:   [][]uint64{nanos(21*s, 21*s, 1*s, 2*s, 3*s, 4*s, 5*s, 6*s)},
			stages: map[string]time.Duration{"gate": 1 * s, "inbox": 2 * s, "batch": 3 * s, "engine": 4 * s, "log_write": 5 * s, "sync": 6 * s, "reply": 10 * s},
		},
		// The answers of the first call are sent before the second, and so are in its reply.
		"writes by several calls": {
			frame:  frame.Request{Timed: true, Ops: previousPuts(previousOps + 1)},
			takes:  trace.Stages{Engine: 1 * s, Sync: 2 * s},
			kind:   "writes",
			sent:   [][]uint64{nanos(4*s, 4*s, 1*s, 0, 0, 1*s, 0, 2*s), nanos(17*s, 7*s, 1*s, 0, 0, 2*s, 0, 4*s)},
			stages: map[string]time.Duration{"gate": 1 * s, "inbox": 0, "batch": 0, "engine": 2 * s, "log_write": 0, "sync": 4 * s, "reply": 20 * s},
		},
		"the client does not ask": {
			frame:  frame.Request{Ops: []frame.Op{{Kind: frame.Get, Key: []byte("k")}}},
			takes:  trace.Stages{Engine: 3 * s},
			kind:   "reads",
			sent:   [][]uint64{nil},
			stages: map[string]time.Duration{"gate": 1 * s, "inbox": 0, "engine": 3 * s, "reply": 10 * s},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := service.New(&slowStore{servicetest.LimitsOnly{L: kv.DefaultLimits}, test.takes}, service.Options{Deadline: time.Hour, SlowTime: 1})
				c := &slowTransport{takes: 10 * s}
				p := pipelineOf(t, server, c)
				begun := time.Now()
				time.Sleep(s)
				batches := p.split(nil, &test.frame, nil, service.Caller{}, begun)
				require.Len(t, batches, 1)
				require.False(t, batches[0].serve())
				assert.Equal(t, test.sent, c.timings)
				stages, n := counted(t, server, test.kind)
				assert.Equal(t, test.stages, stages)
				assert.EqualValues(t, 1, n)

				slow, _, _ := server.SlowRequests(10)
				require.Len(t, slow, 1)
				assert.Equal(t, time.Since(begun), slow[0].Total)
				for i, d := range slow[0].Times {
					assert.Equal(t, test.stages[service.Stage(i).String()], d, service.Stage(i).String())
				}
			})
		})
	}
}

func previousPuts(n int) (ops []frame.Op) {
	for tag := range uint64(n) {
		ops = append(ops, frame.Op{Tag: tag, Kind: frame.Put, Key: []byte("k"), ReturnPrevious: true})
	}
	return ops
}

// What is answered within the turn and what is not are two calls of the store.
func TestAFrameThatPassesItsTurnOnIsTimedInBothParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		server := service.New(&slowStore{servicetest.LimitsOnly{L: kv.DefaultLimits}, trace.Stages{Inbox: 1 * s, Engine: 2 * s}}, service.Options{Deadline: time.Hour})
		c := new(slowTransport)
		p := pipelineOf(t, server, c)
		p.token = make(chan struct{}, 1)
		p.waiting.Store(1) // another worker
		f := frame.Request{Timed: true, Ops: manyGets(3)}
		held := &ReceiveToken{pipeline: p, held: true}
		batches := p.split(nil, &f, held, service.Caller{}, time.Now())
		require.Len(t, batches, 1)
		batches[0].token = held
		require.False(t, batches[0].serve())
		assert.False(t, held.kept())
		assert.Equal(t, [][]uint64{nanos(6*s, 6*s, 0, 2*s, 0, 4*s, 0, 0)}, c.timings)
	})
}

// The wait for room in the store, and also one that is in vain, is the gate's.
func TestTheWaitForRoomIsTheGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		server := service.New(&slowStore{servicetest.LimitsOnly{L: kv.DefaultLimits}, trace.Stages{Engine: 60 * ms}}, service.Options{ReadOps: 1, SlowTime: 70 * ms})
		serve := func() {
			p := pipelineOf(t, server, new(slowTransport))
			f := frame.Request{Ops: []frame.Op{{Kind: frame.Get, Key: []byte("k")}}}
			assert.False(t, p.split(nil, &f, nil, service.Caller{}, time.Now())[0].serve())
		}
		for range 3 {
			go serve()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		stages, n := counted(t, server, "reads")
		assert.EqualValues(t, 3, n)
		assert.Equal(t, 120*ms, stages["engine"], "of two: the third waited too long")
		assert.Equal(t, 60*ms+100*ms, stages["gate"])

		slow, _, _ := server.SlowRequests(10)
		require.Len(t, slow, 2, "the first did not wait")
		assert.Equal(t, [2]string{"ResourceExhausted", "OK"}, [2]string{slow[1].Code.String(), slow[0].Code.String()})
		assert.Equal(t, 100*ms, slow[1].Times[service.StageGate])
	})
}
