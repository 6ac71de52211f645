package replica

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
)

// call is a request to the Core, and what its caller waits for.
type call struct {
	// begin makes the request; the call ends if it fails.
	begin func(*Core) error
	// over is asked after each turn whether the call has ended, and with what. Nil: it ends
	// with begin.
	over   func(*Core) (bool, error)
	ended  chan error  // has room for the error
	gaveUp atomic.Bool // its caller did
}

// Reconfigure changes the configuration, as [Core.Reconfigure] does, and returns when the change
// is applied on this node, which leads.
//
// Errors: those of Core.Reconfigure, after which nothing has changed; kv.ErrUncertain if the
// tenure ended before: a later leader may apply the change; that of ctx, likewise; a
// kv.OverloadError if too many calls wait; what ended the loop.
func (l *Loop) Reconfigure(ctx context.Context, changes ...Change) error {
	changes = slices.Clone(changes)
	return l.ReconfigureBy(ctx, func() (string, []Change, error) { return "", changes, nil })
}

// ReconfigureBy is Reconfigure with the changes that choose returns, and with what the state
// machines are told with them: see [Core.ReconfigureWith]. The loop calls it on its
// goroutine, once this node leads and has applied what earlier leaders have left: what the
// state machine has been told by then is all that precedes the change.
//
// Errors: those of Reconfigure, and that of choose.
func (l *Loop) ReconfigureBy(ctx context.Context, choose func() (info string, changes []Change, err error)) error {
	var in Tenure
	var changes []Change
	return l.call(ctx, &call{
		begin: func(c *Core) (err error) {
			in = c.proposals.tenure
			if err = c.canChange(); err != nil {
				return err
			}
			info := ""
			if info, changes, err = choose(); err != nil {
				return err
			}
			return c.ReconfigureWith(info, changes...)
		},
		over: func(c *Core) (bool, error) {
			tenure, open := c.Tenure()
			switch same := open && tenure == in; {
			case same && c.changing == in:
				return false, nil
			case Settled(c.applied.Conf, changes) && (same || !ofItsOwn(changes)):
				return true, nil
			case same:
				return false, nil
			}
			return true, fmt.Errorf("%w: node %d gave up the leadership before the change of the configuration was applied; see which one holds, and ask the leader again", kv.ErrUncertain, c.config.ID)
		},
	})
}

// ofItsOwn reports whether the configuration does not show that these changes were made: nothing of
// a node that is described, nor for which call a node was added. The next leader may have given
// the same id to another node.
func ofItsOwn(changes []Change) bool {
	return slices.ContainsFunc(changes, func(c Change) bool { return c.Kind == Describe || c.Kind == AddLearner })
}

// Transfer asks for a transfer of the leadership to another voter. It does not wait: Status
// shows what has become of it. A node that does not lead ignores it.
func (l *Loop) Transfer(to uint64) {
	l.post(&call{begin: func(c *Core) error { return c.Transfer(to) }, ended: make(chan error, 1)})
}

// TransferTo transfers the leadership to another voter, 0 for the one that lacks least. It
// returns the node that leads, when this one knows it.
//
// Errors: those of [Core.Transfer]; kv.ErrUncertain if the other voter did not take over; that
// of ctx; a kv.OverloadError if too many calls wait; what ended the loop.
func (l *Loop) TransferTo(ctx context.Context, to uint64) (uint64, error) {
	var in Tenure
	var leader uint64
	err := l.call(ctx, &call{
		begin: func(c *Core) error {
			in = c.proposals.tenure
			return c.Transfer(to)
		},
		over: func(c *Core) (bool, error) {
			tenure, open := c.Tenure()
			switch {
			case open && tenure != in:
				return true, fmt.Errorf("%w: node %d leads again, the other one did not take over in time; ask again", kv.ErrUncertain, c.config.ID)
			case c.role.Lead == 0 || c.role.Lead == c.config.ID:
				return false, nil
			case to != 0 && c.role.Lead != to:
				return true, fmt.Errorf("%w: node %d leads now, not node %d; ask that one", kv.ErrUncertain, c.role.Lead, to)
			}
			leader = c.role.Lead
			return true, nil
		},
	})
	if err != nil {
		return 0, err
	}
	return leader, nil
}

// Members describes the nodes of the group, in the order of their ids.
//
// Errors: that of ctx; a kv.OverloadError if too many calls wait; what ended the loop.
func (l *Loop) Members(ctx context.Context) ([]Member, error) {
	var members []Member
	err := l.call(ctx, &call{begin: func(c *Core) error {
		members = c.Members()
		return c.Err()
	}})
	if err != nil {
		return nil, err
	}
	return members, nil
}

// Records calls fn with the records that the state machine has applied after an index, in
// their order, until it returns false or an error, or those are read that were applied before
// the call. The log after the index must not be given up meanwhile. The records are borrowed.
//
// Errors: that of fn; that of ctx; a kv.OverloadError if too many calls wait; what ended the loop.
func (l *Loop) Records(ctx context.Context, after uint64, fn func(record []byte) (more bool, err error)) error {
	upTo := uint64(0)
	for first := true; first || after < upTo; first = false {
		entries, applied, err := l.applied(ctx, after)
		if err != nil {
			return err
		}
		if first {
			upTo = applied
		}
		for _, e := range entries {
			after = e.GetIndex()
			if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
				continue
			}
			term, record, err := decodeEntry(e.GetData())
			if err != nil {
				return err
			}
			if term != e.GetTerm() {
				continue // no node applies it
			}
			if more, err := fn(record); err != nil || !more {
				return err
			}
		}
	}
	return nil
}

// applied returns some of the entries after an index that are applied, and the index up to
// which they are.
func (l *Loop) applied(ctx context.Context, after uint64) ([]*pb.Entry, uint64, error) {
	type answer struct {
		entries []*pb.Entry
		applied uint64
	}
	found := make(chan answer, 1)
	err := l.call(ctx, &call{begin: func(c *Core) error {
		var a answer
		c.guard(func() error {
			if a.applied = c.applied.Index; a.applied > after {
				a.entries, _ = c.storage.Entries(after+1, a.applied+1, maxMessageBytes) // none, if they were given up
			}
			return nil
		})
		found <- a
		return c.err
	}})
	if err != nil {
		return nil, 0, err
	}
	a := <-found
	if a.applied > after && len(a.entries) == 0 {
		return nil, 0, fmt.Errorf("%w: entry %d was given up", kv.ErrVersionGone, after+1)
	}
	return a.entries, a.applied, nil
}

// Sent says that a node has ended to fetch a checkpoint: see [Core.Sent]. It does not wait. If too
// many calls wait it is lost, and the Core offers the checkpoint again.
func (l *Loop) Sent(node uint64, whole bool) { l.tell(func(c *Core) { c.Sent(node, whole) }) }

// Gone says that the process of a node seems to have ended: see [Core.Gone]. It does not wait. If too
// many calls wait it is lost, and a leader is missed by its silence alone.
func (l *Loop) Gone(node uint64) { l.tell(func(c *Core) { c.Gone(node) }) }

// tell has the loop tell its Core something, unless too many calls wait.
func (l *Loop) tell(begin func(c *Core)) {
	told := &call{ended: make(chan error, 1), begin: func(c *Core) error {
		begin(c)
		return nil
	}}
	_ = l.post(told)
}

// Install lets the log begin at the position of a checkpoint, as [Core.Install] does, and returns
// when that is durable: the loop ends with ErrInstall. It reports false if the checkpoint is not
// needed any more.
//
// Errors: that of ctx, and what ended the loop: then the log on the disk may begin there all the
// same, as after a failed sync; a kv.OverloadError if too many calls wait.
func (l *Loop) Install(ctx context.Context, at Position) (begun bool, err error) {
	err = l.call(ctx, &call{begin: func(c *Core) error {
		if begun = c.Install(at); begun {
			return nil
		}
		return c.Err()
	}})
	if err != nil {
		return false, err
	}
	return begun, nil
}

// call posts a call and waits for its end.
func (l *Loop) call(ctx context.Context, c *call) error {
	c.ended = make(chan error, 1)
	if err := l.post(c); err != nil {
		return err
	}
	select {
	case err := <-c.ended:
		return err
	case <-ctx.Done():
		select {
		case err := <-c.ended: // before ctx did: what it led to may have ended ctx
			return err
		default:
		}
		c.gaveUp.Store(true)
		return ctx.Err()
	}
}

// post gives a call to the loop, which ends it.
func (l *Loop) post(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err
	case l.underway >= maxCalls:
		return &kv.OverloadError{Reason: "calls_waiting", RetryAfter: TickInterval}
	}
	l.underway++
	l.inbox.calls = append(l.inbox.calls, c)
	l.signal()
	return nil
}

// begin makes the request of a call.
func (l *Loop) begin(c *call) {
	if err := c.begin(l.core); err != nil || c.over == nil {
		l.end(c, err)
		return
	}
	l.calls = append(l.calls, c)
}

func (l *Loop) end(c *call, err error) {
	c.ended <- err
	l.mu.Lock()
	l.underway--
	l.mu.Unlock()
}

// endCalls ends the calls that are over, or all if the Core has ended.
func (l *Loop) endCalls(err error) {
	l.calls = slices.DeleteFunc(l.calls, func(c *call) bool {
		over, result := err != nil || c.gaveUp.Load(), err
		if !over {
			over, result = c.over(l.core)
		}
		if over {
			l.end(c, result)
		}
		return over
	})
}
