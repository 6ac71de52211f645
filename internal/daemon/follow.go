package daemon

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/replicated"
)

// formerWait is how long after its start a node also calls those that were in the cluster when it was
// made. If one of them says that this node was removed, both were recovered from a lost majority:
// this one ends, so that not both take writes.
const formerWait = 30 * time.Second

// follower tells the network which nodes there are, as the log says it, and as of which entry: the network
// knows by that which address of a node is newer than the log of this one.
type follower struct {
	network *peer.Network
	log     *replicated.Log
	former  map[uint64]string // addresses that the node was told when it was made
	next    uint64            // above all ids that it was told then
	logger  *zap.Logger

	mu    sync.Mutex
	begun bool
	last  map[uint64]string
}

// follow takes the addresses of all nodes. The first call begins to take messages: before, the log
// does not know with which nodes the cluster began, and no other node is believed.
func (f *follower) follow(addresses map[uint64]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.log.Configuration()
	f.network.SetIncarnation(f.log.Incarnation())
	// A node that knows no configuration yet may need a checkpoint of a leader that was added after it.
	f.network.SetConfiguration(c.Index, cmp.Or(c.Next, f.next))
	if !f.begun {
		f.network.SetFirst(c.First)
		f.network.Start(f.log)
		f.begun = true
	}
	f.last = addresses
	f.tell()
}

// forget forgets the former nodes after formerWait, unless ctx ends before.
func (f *follower) forget(ctx context.Context) {
	select {
	case <-time.After(formerWait):
	case <-ctx.Done():
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.former = nil
	f.tell()
}

func (f *follower) tell() {
	all := maps.Clone(f.former)
	if all == nil {
		all = map[uint64]string{}
	}
	maps.Copy(all, f.last)
	if err := f.network.SetMembers(all); err != nil && !errors.Is(err, kv.ErrClosed) {
		f.logger.Error("the addresses of the nodes cannot be used; the old ones count", zap.Error(err))
	}
}
