package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/memory"
	"github.com/kvd-db/kvd/internal/reason"
)

// Server serves a Store by its protocols. Safe for concurrent use.
type Server struct {
	store    *gatedStore
	limits   kv.Limits
	options  Options
	counters counters
	methods  methods
	memory   *memory.Account
	slow     *slowLog
	peers    peerTable
	waits    [waitKinds]*Waits
	shares   [shareKinds]*shares
	leases   *leases
	demux    *protocolDemux
	unfit    error // why it must not serve

	maxDeadline atomic.Int64 // nanoseconds: Options.MaxDeadline until SetMaxDeadline

	// draining ends when Shutdown begins, and working when its grace period ends.
	draining, working context.Context
	drain, cut        context.CancelFunc

	listeners struct {
		sync.Mutex
		open   map[net.Listener]struct{}
		closed bool // by Shutdown
	}
	accepting sync.WaitGroup // calls of Serve, and what Enter began
	conns     sync.WaitGroup // goroutines of connections; none begins after accepting ended and all are done
	ended     chan struct{}  // closed when Shutdown is about to return
	end       func()
}

// New returns a server of store. It takes no connection before Serve, and is
// ready as health checks see it. Of two protocols that a client speaks, the first is
// served.
func New(store Store, o Options, protocols ...NewProtocol) *Server {
	o = o.withDefaults()
	s := &Server{
		store:   newGatedStore(store, &o),
		limits:  store.Limits(),
		options: o,
		memory:  memory.New(o.BufferBytes),
		slow:    newSlowLog(&o),
		ended:   make(chan struct{}),
	}
	s.SetMaxDeadline(o.MaxDeadline)
	s.end = sync.OnceFunc(func() { close(s.ended) })
	s.draining, s.drain = context.WithCancel(context.Background())
	s.working, s.cut = context.WithCancel(context.Background())
	s.listeners.open = make(map[net.Listener]struct{})
	s.peers.peers = make(map[string]*Peer)
	s.waits = [waitKinds]*Waits{
		waitForCalls:  {kind: waitForCalls, limit: amount{o.Streams, waitingBytes(o.BufferBytes, int64(MessageBytes(s.limits)))}, memory: s.memory},
		waitForHealth: {kind: waitForHealth, limit: amount{healthStreams, 1 << 20}},
	}
	s.shares = [shareKinds]*shares{
		shareOfCalls:     {kind: shareOfCalls, limit: o.Streams},
		shareOfSnapshots: {kind: shareOfSnapshots, limit: o.Snapshots},
	}
	s.leases = newLeases(s.shares[shareOfSnapshots], s.store.ReleaseSnapshot)
	all := make([]Protocol, len(protocols))
	for i, make := range protocols {
		all[i] = make(s)
	}
	s.demux = newProtocolDemux(s, all)
	s.SetReady(nil)
	return s
}

// Options returns the options, with their defaults.
func (s *Server) Options() *Options { return &s.options }

// Memory returns the account of what requests hold.
func (s *Server) Memory() *memory.Account { return s.memory }

// Draining ends when a shutdown begins: clients are to be told to leave.
func (s *Server) Draining() context.Context { return s.draining }

// Working ends when the grace period of a shutdown is over: whatever is under way ends.
func (s *Server) Working() context.Context { return s.working }

// CallWaits is what waits for its client: requests that have come in part, and streams
// on which nothing moves.
func (s *Server) CallWaits() *Waits { return s.waits[waitForCalls] }

// HealthWaits is the same of health checks, which are answered whatever else waits.
func (s *Server) HealthWaits() *Waits { return s.waits[waitForHealth] }

// SetReady says through the protocols that have such a thing why no requests should be routed
// here; nil: they should. It refuses none by itself.
func (s *Server) SetReady(why error) {
	for _, p := range s.demux.protocols {
		if watcher, ok := p.(ReadinessWatcher); ok {
			watcher.SetReady(why)
		}
	}
}

// ReadOnly returns why the store takes no writes, or no puts; nil: it takes them.
func (s *Server) ReadOnly() *Error {
	if store, ok := s.store.Store.(interface{ ReadOnly() error }); ok {
		if why, full := errors.AsType[*kv.ReadOnlyError](store.ReadOnly()); full {
			return readOnlyFailure(why)
		}
	}
	return nil
}

// Serve takes connections from l until Shutdown, and then returns nil. It closes
// l. It may be called for several listeners. It fails if a method has no Rule.
func (s *Server) Serve(l net.Listener) error {
	if err := s.checkRules(); err != nil {
		return errors.Join(err, l.Close())
	}
	if !s.addListener(l) {
		return l.Close()
	}
	err := s.accept(s.limit(l))
	s.removeListener(l)
	s.accepting.Done()
	if s.draining.Err() != nil {
		<-s.ended
		return nil
	}
	return err
}

// addListener returns false after Shutdown has begun.
func (s *Server) addListener(l net.Listener) bool {
	s.listeners.Lock()
	defer s.listeners.Unlock()
	if s.listeners.closed {
		return false
	}
	s.listeners.open[l] = struct{}{}
	s.accepting.Add(1)
	return true
}

// Enter begins work that came by no connection of the server: a shutdown waits until its owner
// calls leave.
//
// Errors: ShuttingDown.
func (s *Server) Enter() (leave func(), err error) {
	s.listeners.Lock()
	defer s.listeners.Unlock()
	if s.listeners.closed {
		return nil, ShuttingDown
	}
	s.accepting.Add(1)
	return s.accepting.Done, nil
}

// removeListener closes a listener, unless that was done.
func (s *Server) removeListener(l net.Listener) {
	s.listeners.Lock()
	defer s.listeners.Unlock()
	if _, open := s.listeners.open[l]; open {
		delete(s.listeners.open, l)
		_ = l.Close() // its Accept has failed or is not called any more
	}
}

func (s *Server) closeListeners() {
	s.listeners.Lock()
	defer s.listeners.Unlock()
	s.listeners.closed = true
	for l := range s.listeners.open {
		delete(s.listeners.open, l)
		_ = l.Close() // ends its Accept, and nothing else counts
	}
}

// Shutdown stops the server in order: it is not ready any more, takes no new
// connections, tells pipelines to move, and waits for what is in flight. When
// ctx ends first, it cuts what is left and returns the error of ctx; writes cut
// off are then in doubt for their callers. Either way nothing of the server runs
// when it returns, provided that the store keeps its obligation to return soon
// after a context ends. It is idempotent.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.end()
	s.SetReady(ShuttingDown)
	s.drain()
	s.closeListeners()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		var draining sync.WaitGroup
		for _, p := range s.demux.protocols {
			if d, ok := p.(Drainer); ok {
				draining.Go(d.Drain)
			}
		}
		s.accepting.Wait()
		s.conns.Wait()
		draining.Wait()
	}()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		s.cut()
		for _, p := range s.demux.protocols {
			if d, ok := p.(Drainer); ok {
				d.Stop()
			}
		}
		<-stopped
		return ctx.Err()
	}
}

// Recover turns a panic of the caller's goroutine into an error. To be deferred.
func (s *Server) Recover(m *Method, err *error) {
	if v := recover(); v != nil {
		*err = s.Panicked(m, v)
	}
}

// Panicked counts and reports a panic: one request fails, the process lives.
func (s *Server) Panicked(m *Method, v any) *Error {
	s.counters.panics.Add(1)
	return s.hidden(m, fmt.Errorf("panic: %v\n%s", v, debug.Stack()), Internal, reason.Internal,
		"internal error; the server's log has the request id")
}
