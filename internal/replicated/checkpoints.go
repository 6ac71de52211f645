package replicated

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// offerLease is for how long a checkpoint is kept that no node fetches, and for which
	// none has asked: longer than a node takes to install one, and to begin again after its
	// connection was lost.
	offerLease = 30 * time.Second
	// keepIncoming is for how long what was fetched of a checkpoint is kept, if nothing is
	// fetched any more.
	keepIncoming = 10 * time.Minute
	// makePause is the least time between two attempts to make a checkpoint, and failPause
	// that after one which has failed.
	makePause = time.Second
	failPause = 10 * time.Second
	// fetchPause is for how long no offer is taken after a transfer has failed, doubled for
	// each further one up to maxFetchPause: it may fail again and again, as on a full disk.
	fetchPause    = time.Second
	maxFetchPause = time.Minute
	// progressEvery is how often Report hears how much was fetched.
	progressEvery = 5 * time.Second
)

// Files is a checkpoint of another node, which is being fetched.
type Files interface {
	backup.Source
	io.Closer
}

// Event is a step of a checkpoint that this node makes, sends or fetches.
type Event struct {
	What  string
	Node  uint64 // the other one; 0: none
	Index uint64 // of the position; 0: not known
	Bytes int64  // done; of Total
	Total int64
	Took  time.Duration
	Err   error // nil: all is well
}

// checkpoints makes, serves and fetches checkpoints, so that both nodes go on serving: neither
// reads files faster than with Config.TransferRate. It implements replica.Checkpoints.
//
//	K1. At most one checkpoint is on offer. It holds its files and the log after its
//	    position until a newer one takes its place and no node fetches it, or no node has
//	    fetched or asked for it for offerLease. A node that fetches and takes nothing ends
//	    its transfer (peer).
//	K2. At most one checkpoint is fetched. Until all of it is durable and the log begins at its
//	    position, the store and its part of the log stay as they are.
//	K3. No file is read, written or removed under mu: the loop of the consensus takes it in ticks. A
//	    checkpoint is released, and what was fetched is removed, after that.
type checkpoints struct {
	log *Log
	fs  vfs.FS
	dir string // the data directory

	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	member   engine.Member // nil before start
	stopped  bool
	making   bool
	makeAt   time.Time // when the next attempt to make one may begin
	current  *offer
	fetching bool // or all is fetched, and has to be installed
	fetchAt  time.Time
	failed   int // transfers in a row
	cleaning *time.Timer
	removing bool // what was fetched; no offer is taken meanwhile
}

// offer is a checkpoint that other nodes can fetch.
type offer struct {
	at         replica.Position
	token      []byte
	checkpoint *engine.Checkpoint
	lease      *time.Timer
	fetchers   map[uint64]int // transfers by node
}

var _ replica.Checkpoints = (*checkpoints)(nil)

func newCheckpoints(l *Log) *checkpoints {
	c := &checkpoints{log: l}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// start begins to make and to fetch checkpoints.
func (c *checkpoints) start(m engine.Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.member = m
	c.cleanLaterLocked()
}

// stop ends all and waits for that. Idempotent.
func (c *checkpoints) stop() {
	c.mu.Lock()
	c.stopped = true
	if c.cleaning != nil {
		c.cleaning.Stop()
	}
	last := c.current
	c.current = nil
	c.mu.Unlock()
	if last != nil {
		last.lease.Stop()
		last.checkpoint.Release()
	}
	c.end()
	c.running.Wait()
}

func (c *checkpoints) report(e Event) {
	if c.log.config.Report != nil {
		c.log.config.Report(e)
	}
}

// goLocked runs something on a goroutine that stop waits for.
func (c *checkpoints) goLocked(run func()) {
	if !c.stopped {
		c.running.Go(run)
	}
}

// Offer implements replica.Checkpoints.
func (c *checkpoints) Offer(good func(replica.Position) bool) (replica.Position, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.current; o != nil && o.checkpoint.Err() == nil && good(o.at) {
		o.lease.Reset(offerLease)
		return o.at, o.token, true
	}
	if !c.making && !c.stopped && !time.Now().Before(c.makeAt) {
		c.making = true
		c.goLocked(c.make)
	}
	return replica.Position{}, nil, false
}

// make makes a checkpoint and puts it on offer.
func (c *checkpoints) make() {
	begin := time.Now()
	o, err := c.newOffer()
	var unused *offer
	c.mu.Lock()
	c.making, c.makeAt = false, time.Now().Add(makePause)
	switch {
	case err != nil:
		c.makeAt = time.Now().Add(failPause)
	case c.stopped:
		unused, err = o, kv.ErrClosed
	default:
		unused = c.dropLocked()
		o.lease = time.AfterFunc(offerLease, func() { c.leaseEnded(o) })
		c.current = o
	}
	c.mu.Unlock()
	unused.release()
	if err == nil {
		c.report(Event{What: "checkpoint made for a node that lags", Index: o.at.Index, Took: time.Since(begin)})
	} else if !errors.Is(err, kv.ErrClosed) && c.life.Err() == nil {
		c.report(Event{What: "checkpoint for a node that lags", Err: err})
	}
}

func (c *checkpoints) newOffer() (*offer, error) {
	checkpoint, at, err := c.member.Checkpoint(c.life, c.log.config.TransferRate)
	if err != nil {
		return nil, err
	}
	o := &offer{checkpoint: checkpoint, token: make([]byte, 16), fetchers: map[uint64]int{}}
	_, _ = rand.Read(o.token) // it never fails
	conf, err := decodeConfiguration(at.Conf, nil)
	if err != nil {
		checkpoint.Release()
		return nil, err
	}
	o.at = replica.Position{Index: at.Index, Term: at.Term, Conf: conf.Conf}
	return o, nil
}

// leaseEnded drops an offer that no node fetches.
func (c *checkpoints) leaseEnded(o *offer) {
	c.mu.Lock()
	var unused *offer
	if c.current == o && len(o.fetchers) == 0 {
		unused = c.dropLocked()
	}
	c.mu.Unlock()
	unused.release()
}

// dropLocked takes the offer back. Those that fetch it go on; if there are none, the caller releases
// the offer that is returned when it has unlocked.
func (c *checkpoints) dropLocked() (unused *offer) {
	o := c.current
	c.current = nil
	if o == nil {
		return nil
	}
	if o.lease.Stop(); len(o.fetchers) > 0 {
		return nil
	}
	return o
}

// release lets go of the files of an offer; nil: of none. It may remove many.
func (o *offer) release() {
	if o != nil {
		o.checkpoint.Release()
	}
}

// Sending implements replica.Checkpoints.
func (c *checkpoints) Sending(node uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current != nil && c.current.fetchers[node] > 0
}

// OpenCheckpoint lets a node fetch the checkpoint that a token names: see
// peer.Network.ServeFiles. The caller calls Release.
//
// Errors: kv.ErrInvalidArgument if there is no such checkpoint, or not any more.
func (l *Log) OpenCheckpoint(_ context.Context, node uint64, token []byte) (*Transfer, error) {
	c := l.checkpoints
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.current
	if o == nil || !bytes.Equal(o.token, token) {
		return nil, fmt.Errorf("%w: it is not there, or not any more; wait for the offer of another one", kv.ErrInvalidArgument)
	}
	o.fetchers[node]++
	return &Transfer{Checkpoint: o.checkpoint, checkpoints: c, offer: o, node: node, begin: time.Now(), fetched: map[string]bool{}}, nil
}

// Transfer is a checkpoint on its way to another node. It is a backup.Source, for one goroutine.
type Transfer struct {
	*engine.Checkpoint
	checkpoints *checkpoints
	offer       *offer
	node        uint64
	begin       time.Time
	fetched     map[string]bool
	released    bool
}

// Fetch implements backup.Source.
func (t *Transfer) Fetch(ctx context.Context, name string, known []uint64) (uint64, io.Reader, error) {
	sum, content, err := t.Checkpoint.Fetch(ctx, name, known)
	if err == nil {
		t.fetched[name] = true
	}
	return sum, content, err
}

// Release ends the transfer. Idempotent.
func (t *Transfer) Release() {
	if t.released {
		return
	}
	t.released = true
	c, o := t.checkpoints, t.offer
	whole := len(t.fetched) == len(t.Info().Files)
	c.mu.Lock()
	if o.fetchers[t.node]--; o.fetchers[t.node] == 0 {
		delete(o.fetchers, t.node)
	}
	var unused *offer
	if len(o.fetchers) == 0 && c.current == o {
		o.lease.Reset(offerLease)
	} else if len(o.fetchers) == 0 {
		unused = o
	}
	c.mu.Unlock()
	defer unused.release()
	if loop := c.log.running(); loop != nil {
		loop.Sent(t.node, whole)
	}
	e := Event{What: "checkpoint sent to a node that lags", Node: t.node, Index: o.at.Index, Took: time.Since(t.begin)}
	if !whole {
		e.Err = errors.New("the node did not fetch all of it")
	}
	c.report(e)
}

// Fetch implements replica.Checkpoints.
func (c *checkpoints) Fetch(from uint64, at replica.Position, token []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fetching || c.removing || c.stopped || time.Now().Before(c.fetchAt) {
		return
	}
	c.fetching = true
	if c.cleaning != nil {
		c.cleaning.Stop()
	}
	c.goLocked(func() {
		decided, err := c.fetch(from, at, token)
		if err != nil && c.life.Err() == nil {
			c.report(Event{What: "checkpoint of a node", Node: from, Index: at.Index, Err: err})
		}
		if decided {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fetching = false
		if c.failed++; err == nil {
			c.failed = 0
		}
		c.fetchAt = time.Now().Add(min(fetchPause<<min(c.failed, 7)/2, maxFetchPause))
		c.cleanLaterLocked()
	})
}

// fetch fetches a checkpoint, and lets the log begin at its position. It reports whether the log
// does, or may: after an error of the log only its next opening can tell. What was fetched then
// stays, as the store may need it.
func (c *checkpoints) fetch(from uint64, at replica.Position, token []byte) (decided bool, err error) {
	begin := time.Now()
	total, err := c.receive(from, at, token)
	if vfs.IsNoSpace(err) {
		err = errors.Join(err, backup.RemoveIncoming(c.fs, c.dir))
	}
	if err != nil {
		return false, err
	}
	begun, err := c.log.running().Install(c.life, at)
	switch {
	case begun:
		c.report(Event{What: "checkpoint of a node: received", Node: from, Index: at.Index, Bytes: total, Total: total, Took: time.Since(begin)})
		return true, nil
	case err != nil:
		return !errors.Is(err, kv.ErrOverloaded), err
	}
	return false, backup.RemoveIncoming(c.fs, c.dir) // the entries have come meanwhile
}

// receive fetches a checkpoint, and returns its bytes.
func (c *checkpoints) receive(from uint64, at replica.Position, token []byte) (total int64, err error) {
	begin := time.Now()
	source, err := c.log.config.Files(c.life, from, token)
	if err != nil {
		return 0, err
	}
	for _, f := range source.Info().Files {
		total += f.Size
	}
	c.report(Event{What: "checkpoint of a node: this node lacks entries that are given up", Node: from, Index: at.Index, Total: total})
	told, done := begin, int64(0)
	_, err = backup.Receive(c.life, source, c.fs, c.dir, begin, backup.Options{Rate: c.log.config.TransferRate, Progress: func(n, _ int64) {
		if done += n; time.Since(told) >= progressEvery {
			told = time.Now()
			c.report(Event{What: "checkpoint of a node: fetching", Node: from, Index: at.Index, Bytes: done, Total: total})
		}
	}})
	if err = errors.Join(err, source.Close()); err != nil {
		return 0, err
	}
	return total, engine.CheckReceived(c.fs, c.dir, engine.LogBegin{Index: at.Index, Term: at.Term})
}

// cleanLaterLocked removes what was fetched and not installed, if nothing more is fetched for a
// while.
func (c *checkpoints) cleanLaterLocked() {
	if c.stopped {
		return
	}
	c.cleaning = time.AfterFunc(keepIncoming, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.fetching && !c.stopped {
			c.removing = true
			c.goLocked(c.removeIncoming)
		}
	})
}

// removeIncoming removes what was fetched. After an error it is tried again later.
func (c *checkpoints) removeIncoming() {
	err := backup.RemoveIncoming(c.fs, c.dir)
	c.mu.Lock()
	if c.removing = false; err != nil && !c.fetching {
		c.cleanLaterLocked()
	}
	c.mu.Unlock()
	if err != nil {
		c.report(Event{What: "removing what was fetched of a checkpoint", Err: err})
	}
}
