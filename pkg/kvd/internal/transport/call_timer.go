package transport

import (
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// setServer copies the stages that the server measured.
func setServer(t *backend.Timings, m *kvdpb.Timings) {
	t.Gate, t.Inbox, t.Batch = time.Duration(m.GetGateNs()), time.Duration(m.GetInboxNs()), time.Duration(m.GetBatchNs())
	t.Engine, t.LogWrite, t.Sync = time.Duration(m.GetEngineNs()), time.Duration(m.GetLogWriteNs()), time.Duration(m.GetSyncNs())
	t.Reply = time.Duration(m.GetReplyNs())
}

// callTimer measures one call. The zero callTimer, of a call without Timed, does nothing.
type callTimer struct {
	into  *backend.Timings
	begun time.Time
	last  *attemptTimes // of the last attempt
}

// attemptTimes has the times of one attempt. What has not happened is zero.
type attemptTimes struct {
	sentAt, receivedAt time.Time
	ops                int             // in the frame
	server             backend.Timings // what the server measured
}

// startTimer starts the timer of a call; into may be nil.
func startTimer(into *backend.Timings) callTimer {
	if into == nil {
		return callTimer{}
	}
	*into = backend.Timings{}
	return callTimer{into, time.Now(), new(attemptTimes)}
}

func (ct *callTimer) on() bool { return ct.into != nil }

// beginAttempt starts an attempt and returns its times, nil if no timings were asked for.
func (ct *callTimer) beginAttempt() *attemptTimes {
	if ct.on() {
		*ct.last = attemptTimes{}
	}
	return ct.last
}

// beginSent starts an attempt outside frames, which is sent at once.
func (ct *callTimer) beginSent() {
	if t := ct.beginAttempt(); t != nil {
		t.sentAt = time.Now()
	}
}

// options returns the options of a read outside frames.
func (ct *callTimer) options() *kvdpb.RequestOptions {
	if !ct.on() {
		return nil
	}
	return &kvdpb.RequestOptions{WantTimings: true}
}

// readOptions returns the options of a read.
func (ct *callTimer) readOptions(at backend.ReadVersion) *kvdpb.RequestOptions {
	o := ct.options()
	if !at.Loose() {
		return o
	}
	if o == nil {
		o = &kvdpb.RequestOptions{}
	}
	o.MaxLagMs, o.MinVersion = uint64(at.MaxLag.Milliseconds()), at.MinVersion
	return o
}

// answered is called when an attempt has the message that answers it.
func (ct *callTimer) answered(m *kvdpb.ResponseMeta) {
	if ct.on() {
		if ct.last.receivedAt.IsZero() { // it came in no frame
			ct.last.receivedAt = time.Now()
		}
		setServer(&ct.last.server, m.GetTimings())
	}
}

// stop ends the call and fills in its timings.
func (ct *callTimer) stop(attempts int) {
	if !ct.on() {
		return
	}
	now, times := time.Now(), ct.last
	t := times.server
	t.Attempts, t.FrameOps = attempts, times.ops
	switch {
	case times.sentAt.IsZero():
		t.ClientQueue = now.Sub(ct.begun)
	case times.receivedAt.IsZero():
		t.ClientQueue, t.Network = times.sentAt.Sub(ct.begun), now.Sub(times.sentAt)
	default:
		t.ClientQueue, t.Return = times.sentAt.Sub(ct.begun), now.Sub(times.receivedAt)
		t.Network = max(times.receivedAt.Sub(times.sentAt)-t.Store(), 0)
	}
	*ct.into = t
}

// recordIn makes the operation record its times in t, unless that is nil. The caller holds the
// connection's lock, or has not shared the frame yet.
func (p *pendingOp) recordIn(t *attemptTimes) {
	if t != nil {
		p.times, p.frame.timed = t, true
	}
}

// recordTimes records how far the frame of a timed operation has come. It may be called whenever
// outcome may be.
func (p *pendingOp) recordTimes() {
	f, t := p.frame, p.times
	t.ops, t.sentAt = f.count, f.sentAt
	if at := f.answerOf(p.position); at >= 0 {
		t.receivedAt = f.receivedAt[at]
		t.server = timingsOf(f.answers[at].Timings)
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

// timingsOf returns the timings in an answer frame. The time of stages that an older server does
// not report is in Reply.
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
