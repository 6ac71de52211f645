package replicated

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/replica"
)

// askEvery is how long after it has asked the others a node asks those again that have no digest
// of the version yet. askWait bounds how long it waits for one.
const (
	askEvery = 10 * time.Second
	askWait  = 5 * time.Second
)

// Comparison is what is known of the states of the nodes at a version. A node that has not told
// its digest is in neither list.
type Comparison struct {
	Version kv.SeqNum
	Same    []uint64 // nodes that have the state of the majority
	Differ  []uint64 // the others; if Unknown, all that have told theirs
	// Unknown says that voters differ, and that as far as is known no majority has the same state.
	Unknown bool
}

// Comparisons counts comparisons, and tells the last one.
type Comparisons struct {
	Same   uint64    // those in which all nodes that had told by then had the same state
	Differ uint64    // those in which one did not
	At     time.Time // of Last; zero: there was none
	Last   Comparison
}

// comparer tells the other nodes the digests of this one, hears theirs, and judges. See
// "Comparison" in the package comment.
type comparer struct {
	node     uint64
	nodes    func() []replica.Member
	exchange func(ctx context.Context, node uint64, mine peer.Digest) (peer.Digest, error)
	report   func(Comparison)
	differs  func(why string)
	wake     chan struct{} // has a token if there is something to do

	mu     sync.Mutex
	mine   peer.Digest            // the newest of this node; zero: none
	theirs map[uint64]peer.Digest // the newest of each other node
	counts Comparisons
}

// Compare implements engine.ReplicatedLog.
func (l *Log) Compare(d engine.StateDigest) {
	c := &l.comparer
	c.mu.Lock()
	c.mine = peer.Digest{Version: uint64(d.Version), Sum: d.Sum}
	c.mu.Unlock()
	c.signal()
}

// Hear takes the newest digest of another node, and returns that of this one.
func (l *Log) Hear(node uint64, theirs peer.Digest) (mine peer.Digest) {
	c := &l.comparer
	c.note(node, theirs)
	c.signal()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mine
}

// Comparisons tells what comparisons of the states of the nodes have found.
func (l *Log) Comparisons() Comparisons {
	l.comparer.mu.Lock()
	defer l.comparer.mu.Unlock()
	return l.comparer.counts
}

func (c *comparer) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *comparer) note(node uint64, d peer.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Version >= c.theirs[node].Version {
		c.theirs[node] = d
	}
}

// run compares until ctx ends.
func (c *comparer) run(ctx context.Context) {
	var told peer.Digest // to all other nodes that answer
	again := time.NewTimer(askEvery)
	defer again.Stop()
	for {
		select {
		case <-c.wake:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		again.Reset(askEvery)
		c.mu.Lock()
		mine := c.mine
		c.mu.Unlock()
		if mine == (peer.Digest{}) {
			continue
		}
		for _, node := range c.nodes() {
			if node.ID != c.node && (told != mine || !c.knows(node.ID, mine.Version)) {
				c.ask(ctx, node.ID, mine)
			}
		}
		told = mine
		c.judge(mine)
	}
}

// knows reports whether a node has told its digest of a version, or is past it.
func (c *comparer) knows(node, version uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.theirs[node].Version >= version
}

// ask tells a node the digest of this one, and asks for its own. A node that does not answer is
// asked again.
func (c *comparer) ask(ctx context.Context, node uint64, mine peer.Digest) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if theirs, err := c.exchange(ctx, node, mine); err == nil {
		c.note(node, theirs)
	}
}

// judge compares what is known with the digest of this node.
func (c *comparer) judge(mine peer.Digest) {
	now, sum, decided := c.compare(mine, c.nodes())
	if !decided {
		return
	}
	c.mu.Lock()
	last := &c.counts.Last
	news := last.Version != now.Version || !slices.Equal(last.Same, now.Same) || !slices.Equal(last.Differ, now.Differ)
	switch again := last.Version == now.Version; {
	case len(now.Differ) > 0 && !(again && len(last.Differ) > 0):
		c.counts.Differ++
	case len(now.Differ) == 0 && !again:
		c.counts.Same++
	}
	c.counts.Last, c.counts.At = now, time.Now()
	c.mu.Unlock()
	if news {
		c.report(now)
	}
	if news && slices.Contains(now.Differ, c.node) && !now.Unknown {
		c.differs(fmt.Sprintf("at version %d it has digest %016x, and nodes %v, a majority, have %016x", mine.Version, mine.Sum, now.Same, sum))
	}
}

// compare returns what is known of the states at the version of a digest, and the sum that the
// majority of the voters has. It is decided when there is one, and also when voters differ.
func (c *comparer) compare(mine peer.Digest, nodes []replica.Member) (now Comparison, sum uint64, decided bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now.Version = kv.SeqNum(mine.Version)
	sums, votes := map[uint64]uint64{c.node: mine.Sum}, map[uint64]int{}
	voters := 0
	for _, n := range nodes {
		if d := c.theirs[n.ID]; n.ID != c.node && d.Version == mine.Version {
			sums[n.ID] = d.Sum
		}
		if n.Voter {
			voters++
			if s, known := sums[n.ID]; known {
				votes[s]++
			}
		}
	}
	now.Unknown = true
	for s, n := range votes {
		if 2*n > voters {
			sum, now.Unknown = s, false
		}
	}
	for _, n := range nodes {
		switch s, known := sums[n.ID]; {
		case !known:
		case !now.Unknown && s == sum:
			now.Same = append(now.Same, n.ID)
		default:
			now.Differ = append(now.Differ, n.ID)
		}
	}
	return now, sum, !now.Unknown || len(votes) > 1
}
