package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
)

// TickInterval is how long a tick is.
const TickInterval = 100 * time.Millisecond

// Bounds of what waits for the loop.
const (
	// MaxUncommittedBytes bounds the records without an outcome; a single longer one is taken
	// alone.
	MaxUncommittedBytes = 64 << 20

	maxMessages     = 4096
	maxQueuedBytes  = 64 << 20 // of messages
	maxWaitingReads = 1 << 16
	maxGivenUpReads = 1 << 10 // that the Core keeps, and as many more as there are others
	maxCalls        = 64      // of Reconfigure, TransferTo and Members
)

// ErrNoRoom says that MaxUncommittedBytes are proposed and have no outcome. Nothing has
// happened: the caller proposes the same record again, before any later one, when outcomes have
// been reported.
var ErrNoRoom = fmt.Errorf("%w: too many bytes of records are not committed yet", kv.ErrOverloaded)

// Proposer is told what becomes of proposals. The loop calls it on its goroutine, one call at
// a time; it must not block, nor call Stop.
type Proposer interface {
	// Lead says that a tenure has begun. The state machine is at the state from which to
	// number. Any tenure before it is over, and the outcomes of its proposals are reported.
	Lead(Tenure)
	// Lost says that the tenure is over: no further record of it is taken. Some may still
	// be committed.
	Lost(Tenure)
	// Ended reports outcomes, in the order of the calls of Propose.
	Ended([]Outcome)
}

// Loop calls a Core on a goroutine of its own. While that writes and syncs, messages,
// proposals and reads queue; it then takes all of them at once, so they share the next sync.
// Its methods are safe for concurrent use.
type Loop struct {
	core     *Core
	proposer Proposer
	wake     chan struct{} // holds a token if there is something to take
	done     chan struct{}

	// Of the goroutine of the loop alone.
	tenure  Tenure          // that the proposer knows; zero if none
	refused []Outcome       // of proposals that the Core did not take: it has ended
	calls   []*call         // that wait for what their requests lead to
	more    bool            // committed entries are left to apply,
	room    <-chan struct{} // before this is closed or a tick has passed, if it is not nil

	mu    sync.Mutex
	inbox inbox
	// inFlight counts the bytes of proposals without an outcome, and their sizes in order.
	inFlight int64
	sizes    []int64
	nextID   uint64
	waiting  map[uint64]waitingRead
	fresh    time.Time // when the newest read that was answered began; zero: none was
	underway int       // calls without an end
	status   Status
	leads    Leads
	changed  chan struct{} // of leads
	members  []Member      // as of the last tick
	stopping bool
	err      error
}

// inbox is what waits for the loop.
type inbox struct {
	messages     []*pb.Message
	messageBytes int
	proposals    []numbered
	reads        []uint64
	calls        []*call
	free, most   uint64 // for Compact; 0: none
}

type numbered struct {
	tenure Tenure
	id     uint64
	record []byte
}

// Start starts the loop of a Core, which belongs to the loop from then on.
func Start(core *Core, proposer Proposer) *Loop {
	l := &Loop{
		core: core, proposer: proposer, wake: make(chan struct{}, 1), done: make(chan struct{}),
		waiting: map[uint64]waitingRead{}, status: core.Status(), changed: make(chan struct{}),
	}
	l.leads.Changed = l.changed
	core.closing = l.hush
	go l.run()
	return l
}

// Stop ends the loop and waits for that. What has no outcome yet is reported before.
// Idempotent.
func (l *Loop) Stop() {
	l.mu.Lock()
	l.stopping = true
	l.mu.Unlock()
	l.signal()
	<-l.done
}

// Done is closed when the loop has ended: after Stop, or an error.
func (l *Loop) Done() <-chan struct{} { return l.done }

// Err returns what ended the loop, kv.ErrClosed after Stop; nil while it runs.
func (l *Loop) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Status describes the Core as it was when it last went to wait.
func (l *Loop) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Leads says which node leads.
type Leads struct {
	Node uint64 // 0: none, as far as this one knows
	Open bool   // it is this one, in a tenure
	// Changed is closed when this is out of date.
	Changed <-chan struct{}
}

// Leads says which node leads now.
func (l *Loop) Leads() Leads {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads
}

// showLeads says which node leads now, and whether it is this one, in a tenure of which the proposer
// knows.
func (l *Loop) showLeads(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if node := l.status.Leader; node != l.leads.Node || open != l.leads.Open {
		close(l.changed)
		l.changed = make(chan struct{})
		l.leads = Leads{node, open, l.changed}
	}
}

// Counts says what the node has done since it started.
func (l *Loop) Counts() Counts { return l.core.Counts() }

// MembersAtTick is Members as they were up to a tick ago; it does not wait. The result is shared.
func (l *Loop) MembersAtTick() []Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.members
}

// Deliver takes a message of a peer, and ownership of it. It does not block: it reports
// false, and drops the message, if too many wait or the loop has ended.
func (l *Loop) Deliver(m *pb.Message) bool {
	size := proto.Size(m)
	l.mu.Lock()
	in := &l.inbox
	ok := l.err == nil && len(in.messages) < maxMessages && (in.messageBytes == 0 || in.messageBytes+size <= maxQueuedBytes)
	if ok {
		in.messages = append(in.messages, m)
		in.messageBytes += size
	}
	l.mu.Unlock()
	if ok {
		l.signal()
	}
	return ok
}

// Propose proposes a record that its caller has numbered in a tenure, and returns an id
// above all before. Its outcome is reported once to the Proposer, perhaps before Propose
// returns. It does not block, and keeps the record, which must not be changed.
//
// Errors, without an outcome: kv.ErrInvalidArgument for an empty record or one above
// MaxRecordBytes; ErrNoRoom, after which the caller proposes the same record again, before any
// later one, when outcomes have been reported; what ended the loop.
func (l *Loop) Propose(t Tenure, record []byte) (id uint64, err error) {
	size := int64(len(record))
	if size == 0 || size > MaxRecordBytes {
		return 0, errRecordSize(size)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return 0, l.err
	case l.inFlight > 0 && l.inFlight+size > MaxUncommittedBytes:
		return 0, ErrNoRoom
	}
	l.nextID++
	l.inFlight += size
	l.sizes = append(l.sizes, size)
	l.inbox.proposals = append(l.inbox.proposals, numbered{t, l.nextID, record})
	l.signal()
	return l.nextID, nil
}

// Read returns when the state machine may be read: it has then applied all that was
// acknowledged anywhere before the call.
//
// Errors: that of ctx; a kv.OverloadError if too many reads wait; what ended the loop.
func (l *Loop) Read(ctx context.Context) error {
	answered, begun := make(chan struct{}), time.Now() // before the leader is asked: see Fresh
	l.mu.Lock()
	if err := l.err; err != nil || len(l.waiting) >= maxWaitingReads || len(l.inbox.reads) >= maxWaitingReads {
		l.mu.Unlock()
		if err == nil {
			err = &kv.OverloadError{Reason: "reads_waiting", RetryAfter: TickInterval}
		}
		return err
	}
	l.nextID++
	id := l.nextID
	l.waiting[id] = waitingRead{answered, begun}
	l.inbox.reads = append(l.inbox.reads, id)
	l.mu.Unlock()
	l.signal()
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.waiting, id)
		l.mu.Unlock()
		return ctx.Err()
	case <-l.done:
		select {
		case <-answered: // just before
			return nil
		default:
			return l.Err()
		}
	}
}

// waitingRead is a read without an answer.
type waitingRead struct {
	answered chan struct{} // closed then
	begun    time.Time
}

// Fresh reports whether everything that was acknowledged anywhere longer than lag ago has been
// applied here. A read that began at a time, and was answered, has shown that for all before
// that time; so only the clock of this node counts, and the time that passed until the answer
// came makes the state older, not newer. Fresh does not wait, and asks no other node.
func (l *Loop) Fresh(lag time.Duration) bool {
	l.mu.Lock()
	fresh, err := l.fresh, l.err
	l.mu.Unlock()
	return err == nil && !fresh.IsZero() && elapsed(fresh, time.Now()) <= lag
}

// elapsed returns how long ago a time was: the longer of what the monotonic clock says, which
// stands still while the machine is suspended, and the time of day, which may be set back.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// Compact gives up entries: see Core.Compact. It does not wait. Indexes that are not applied are
// ignored.
func (l *Loop) Compact(free, most uint64) {
	l.mu.Lock()
	l.inbox.free, l.inbox.most = max(l.inbox.free, free), max(l.inbox.most, most)
	l.mu.Unlock()
	l.signal()
}

func (l *Loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Loop) run() {
	defer close(l.done)
	ticker := time.NewTicker(TickInterval)
	defer ticker.Stop()
	for tick := false; l.turn(tick); {
		tick = l.await(ticker.C)
	}
}

// await returns when there is something to take or to apply, and whether a tick has passed.
func (l *Loop) await(ticks <-chan time.Time) (tick bool) {
	if l.more && l.room == nil {
		select {
		case <-ticks:
			return true
		default:
			return false
		}
	}
	select {
	case <-l.wake:
	case <-l.room:
	case <-ticks:
		return true
	}
	return false
}

// turn takes what has queued and lets the Core process it. It reports false when the
// Core has ended. Messages come before the tick: after a long sync they show that
// the leader is there.
func (l *Loop) turn(tick bool) bool {
	l.mu.Lock()
	in, stopping, wait := l.inbox, l.stopping, len(l.waiting)
	l.inbox = inbox{}
	l.mu.Unlock()
	for _, m := range in.messages {
		_ = l.core.Step(m) // one that no peer sends is dropped; Process returns what ended the Core
	}
	if tick {
		l.core.Tick()
	}
	for _, p := range in.proposals {
		l.propose(p)
	}
	for _, id := range in.reads {
		_ = l.core.Read(id)
	}
	if l.core.reads.held() > 2*wait+maxGivenUpReads {
		l.forgetReads()
	}
	for _, c := range in.calls {
		l.begin(c)
	}
	if in.free > 0 {
		_ = l.core.Compact(in.free, in.most)
	}
	if stopping {
		l.core.Stop()
	}
	goesOn := l.process()
	if tick && goesOn {
		members := l.core.Members()
		l.mu.Lock()
		l.members = members
		l.mu.Unlock()
	}
	return goesOn
}

// forgetReads lets the Core forget the reads whose callers have given up.
func (l *Loop) forgetReads() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.core.reads.forget(func(id uint64) bool { _, waits := l.waiting[id]; return waits })
}

// propose hands a proposal to the Core. Once that has ended, the record is in no log.
func (l *Loop) propose(p numbered) {
	if err := l.core.Propose(p.tenure, p.id, p.record); err != nil {
		l.refused = append(l.refused, Outcome{ID: p.id, Result: Dropped})
	}
}

// hush tells the proposer that the tenure is over before the Core ends it, and hands what is proposed by
// then to the Core. So a record that the proposer has numbered is in the log of this node, and is not
// dropped because the loop waited for its disk when the tenure ended.
func (l *Loop) hush() {
	if l.tenure == (Tenure{}) {
		return
	}
	l.showLeads(false)
	l.proposer.Lost(l.tenure)
	l.tenure = Tenure{}
	l.mu.Lock()
	proposals := l.inbox.proposals
	l.inbox.proposals = nil
	l.mu.Unlock()
	for _, p := range proposals {
		l.propose(p)
	}
}

// process lets the Core work, and tells callers what has come of it.
func (l *Loop) process() bool {
	out, err := l.core.Process()
	l.more, l.room = out.More, out.Room
	l.mu.Lock()
	l.err = err
	for _, id := range out.Reads {
		if r, waits := l.waiting[id]; waits { // its caller still does
			close(r.answered)
			delete(l.waiting, id)
			if r.begun.After(l.fresh) {
				l.fresh = r.begun
			}
		}
	}
	if err == nil {
		l.status = l.core.Status()
	} else {
		for _, p := range l.inbox.proposals { // since turn took the others
			l.refused = append(l.refused, Outcome{ID: p.id, Result: Dropped})
		}
		l.calls = append(l.calls, l.inbox.calls...)
		l.inbox = inbox{}
		out.Outcomes = append(out.Outcomes, l.refused...)
	}
	for range out.Outcomes {
		l.inFlight -= l.sizes[0]
		l.sizes = l.sizes[1:]
	}
	l.mu.Unlock()
	if len(out.Outcomes) > 0 {
		l.proposer.Ended(out.Outcomes)
	}
	l.announce()
	l.endCalls(err)
	return err == nil
}

// announce tells the proposer of the end of a tenure and of the begin of the next.
func (l *Loop) announce() {
	now, open := l.core.Tenure()
	if !open {
		now = Tenure{}
	}
	l.showLeads(open && now == l.tenure)
	if now == l.tenure {
		return
	}
	if l.tenure != (Tenure{}) {
		l.proposer.Lost(l.tenure)
	}
	if l.tenure = now; open {
		l.proposer.Lead(now)
		l.showLeads(true)
	}
}
