package transport

import (
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// setServer takes over what the server says.
func setServer(t *backend.Timings, m *kvdpb.Timings) {
	t.Gate, t.Inbox, t.Batch = time.Duration(m.GetGateNs()), time.Duration(m.GetInboxNs()), time.Duration(m.GetBatchNs())
	t.Engine, t.LogWrite, t.Sync = time.Duration(m.GetEngineNs()), time.Duration(m.GetLogWriteNs()), time.Duration(m.GetSyncNs())
	t.Reply = time.Duration(m.GetReplyNs())
}

// watch measures one call. The zero watch, of a call without Timed, does nothing.
type watch struct {
	into  *backend.Timings
	begun time.Time
	trip  *trip // the last one
}

// trip is one try of a timed operation. What has not happened is zero.
type trip struct {
	left, back time.Time
	ops        int             // of its frame
	said       backend.Timings // by the server
}

// startWatch begins a call; into may be nil.
func startWatch(into *backend.Timings) watch {
	if into == nil {
		return watch{}
	}
	*into = backend.Timings{}
	return watch{into, time.Now(), new(trip)}
}

func (w *watch) on() bool { return w.into != nil }

// depart starts a try and returns its trip, nil if no timings were asked for.
func (w *watch) depart() *trip {
	if w.on() {
		*w.trip = trip{}
	}
	return w.trip
}

// goes begins a try outside frames, which leaves at once.
func (w *watch) goes() {
	if t := w.depart(); t != nil {
		t.left = time.Now()
	}
}

// options are what a read outside frames asks for.
func (w *watch) options() *kvdpb.RequestOptions {
	if !w.on() {
		return nil
	}
	return &kvdpb.RequestOptions{WantTimings: true}
}

// answered is called when a try outside frames has its answer.
func (w *watch) answered(m *kvdpb.ResponseMeta) {
	if w.on() {
		w.trip.back = time.Now()
		setServer(&w.trip.said, m.GetTimings())
	}
}

// stop ends the call, after so many tries.
func (w *watch) stop(attempts int) {
	if !w.on() {
		return
	}
	now, trip := time.Now(), w.trip
	t := trip.said
	t.Attempts, t.FrameOps = attempts, trip.ops
	switch {
	case trip.left.IsZero():
		t.ClientQueue = now.Sub(w.begun)
	case trip.back.IsZero():
		t.ClientQueue, t.Network = trip.left.Sub(w.begun), now.Sub(trip.left)
	default:
		t.ClientQueue, t.Return = trip.left.Sub(w.begun), now.Sub(trip.back)
		t.Network = max(trip.back.Sub(trip.left)-t.Store(), 0)
	}
	*w.into = t
}

// recordIn makes the operation record its times in t, unless that is nil. It is called with the connection's lock, or
// before the frame is shared.
func (p *pendingOp) recordIn(t *trip) {
	if t != nil {
		p.trip, p.frame.timed = t, true
	}
}

// recordTimes records how far the frame of a timed operation has come. It is called where outcome
// may be.
func (p *pendingOp) recordTimes() {
	f, t := p.frame, p.trip
	t.ops, t.left = f.count, f.sentAt
	if at := f.answerOf(p.position); at >= 0 {
		t.back = f.receivedAt[at]
		t.said = timingsOf(f.answers[at].Timings)
	}
}

// answerOf returns which of the answers has the result at a position, -1 if none has.
func (f *pendingFrame) answerOf(position int) int {
	if f.whole {
		return 0
	}
	result := f.result(position)
	for i, r := range f.answers {
		for j := range r.Results {
			if &r.Results[j] == result {
				return i
			}
		}
	}
	return -1
}

// timingsOf is what an answer frame says. Stages that an older server does not know
// are in Reply.
func timingsOf(nanos []uint64) (t backend.Timings) {
	var all [frame.TimingCount]time.Duration
	for i := range min(len(nanos), len(all)) {
		all[i] = time.Duration(nanos[i])
	}
	t.Gate, t.Inbox, t.Batch = all[frame.TimingGate], all[frame.TimingInbox], all[frame.TimingBatch]
	t.Engine, t.LogWrite, t.Sync = all[frame.TimingEngine], all[frame.TimingLogWrite], all[frame.TimingSync]
	t.Reply = max(all[frame.TimingServer]-t.Store(), 0)
	return t
}
