package kvd

import (
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Timings is where the time of one call went. Each moment of it is in one field: see
// Total. What one stage waits for, another call may be in the midst of: the stages of
// the server are those of all operations that it served together with this one,
// usually those of one kind in the same frame.
type Timings struct {
	// ClientQueue is the time in the client until the operation left: until there was
	// room for its frame. If it was tried several times, all but the last try is here.
	ClientQueue time.Duration
	// Network is from then until the answer came, but for what the server says that it
	// took: the way there and back, and waiting in the buffers of both systems. Without
	// an answer it is all the time that was waited for one.
	Network time.Duration

	// Gate is the time until the store of the server had the operation: until its frame
	// was taken apart and, in an overload, there was room for it.
	Gate time.Duration
	// Inbox is the wait until a partition took it up.
	Inbox time.Duration
	// Batch is the wait of a write until its micro-batch was handed to the log.
	Batch time.Duration
	// Engine is the work: lookups in memory and in files; what a write takes behind the
	// log.
	Engine time.Duration
	// LogWrite is the wait until the server's kernel had the log's record, and Sync that
	// until the disk had it. What the durability of a write does not ask for is not
	// waited for, but a write does wait for those before it in its partition.
	LogWrite, Sync time.Duration
	// Reply is the time in which the server put the answer together.
	Reply time.Duration

	// Return is from when the answer came until the call went on.
	Return time.Duration

	// Attempts is how often the call was tried.
	Attempts int
	// FrameOps is how many operations were in the frame of this one; 0 if it was no
	// frame that it travelled in.
	FrameOps int
}

// Total returns the sum of all stages: how long the call took.
func (t *Timings) Total() time.Duration {
	return t.ClientQueue + t.Network + t.server() + t.Return
}

// server is what the server took.
func (t *Timings) server() time.Duration {
	return t.Gate + t.Inbox + t.Batch + t.Engine + t.LogWrite + t.Sync + t.Reply
}

// setServer takes over what the server says.
func (t *Timings) setServer(m *kvdpb.Timings) {
	t.Gate, t.Inbox, t.Batch = time.Duration(m.GetGateNs()), time.Duration(m.GetInboxNs()), time.Duration(m.GetBatchNs())
	t.Engine, t.LogWrite, t.Sync = time.Duration(m.GetEngineNs()), time.Duration(m.GetLogWriteNs()), time.Duration(m.GetSyncNs())
	t.Reply = time.Duration(m.GetReplyNs())
}

// CallOption is a choice for any read or write but a scan.
type CallOption interface {
	ReadOption
	WriteOption
}

// Timed has the call fill in where its time went, also if it fails, as far as that is
// known then. The server measures anyway; the answer to the frame of a timed
// operation is some thirty bytes longer.
//
// A nil pointer asks for nothing. A read that a transaction answers itself takes no
// time; what a Commit needs is in its own, not in those of its writes, which do not take
// this option.
func Timed(into *Timings) CallOption { return timed{into} }

type timed struct{ into *Timings }

// tookNoTime is what a read is told that needs no server.
func (o *readOptions) tookNoTime() {
	if o.timings != nil {
		*o.timings = Timings{}
	}
}

func (t timed) forRead(o readOptions) readOptions {
	o.timings = t.into
	return o
}

func (t timed) forWrite(o *writeOptions) {
	o.choose(choseTimed, nil)
	o.timings = t.into
}

// watch measures one call. That of a call that nobody wants to know about is zero and
// does nothing. Used by one goroutine.
type watch struct {
	into  *Timings
	begun time.Time
	trip  *trip // the last one
}

// trip is one try of a timed operation. What has not happened is zero.
type trip struct {
	left, back time.Time
	ops        int     // of its frame
	said       Timings // by the server
}

// startWatch begins a call; into may be nil.
func startWatch(into *Timings) watch {
	if into == nil {
		return watch{}
	}
	*into = Timings{}
	return watch{into, time.Now(), new(trip)}
}

func (w *watch) on() bool { return w.into != nil }

// depart begins a try, and returns its trip, nil if nobody wants to know.
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
		w.trip.said.setServer(m.GetTimings())
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
		t.Network = max(trip.back.Sub(trip.left)-t.server(), 0)
	}
	*w.into = t
}

// time has what becomes of a seat noted. It is called with the connection's lock, or
// before anybody else knows the flight.
func (s *seat) time(t *trip) {
	if t != nil {
		s.trip, s.flight.timed = t, true
	}
}

// note notes how far the flight of a timed seat has come. It is called where take may
// be.
func (s *seat) note() {
	f, t := s.flight, s.trip
	t.ops, t.left = f.count, f.left
	if at := f.answerOf(s.place); at >= 0 {
		t.back = f.arrived[at]
		t.said = timingsOf(f.answers[at].Timings)
	}
}

// answerOf returns which of the answers has the result at a position, -1 if none has.
func (f *flight) answerOf(place int) int {
	if f.whole {
		return 0
	}
	result := f.result(place)
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
func timingsOf(nanos []uint64) (t Timings) {
	var all [frame.TimingCount]time.Duration
	for i := range min(len(nanos), len(all)) {
		all[i] = time.Duration(nanos[i])
	}
	t.Gate, t.Inbox, t.Batch = all[frame.TimingGate], all[frame.TimingInbox], all[frame.TimingBatch]
	t.Engine, t.LogWrite, t.Sync = all[frame.TimingEngine], all[frame.TimingLogWrite], all[frame.TimingSync]
	t.Reply = max(all[frame.TimingServer]-t.server(), 0)
	return t
}
