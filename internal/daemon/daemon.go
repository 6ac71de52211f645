package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/address"
	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/bytesize"
	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
)

// process is one run of Run.
type process struct {
	config  Config // as it was at the start, completed
	live    *liveSettings
	log     *zap.Logger
	journal *journal
	disk    *diskWatch
	tls     *certificate.Server // nil: connections are plain text
	auth    *auth.Authority     // nil: every client may do everything
	audited *audit.Log          // nil: there is none

	listen, adminListen net.Listener
	guard               *admin.Guard // nil: the admin pages are for every client
	pages               *http.Server
	ended               chan error // capacity 2: what a listener's Serve returned

	// Set when the store is open; the admin pages read them before and after.
	engine   atomic.Pointer[engine.Engine]
	server   atomic.Pointer[service.Server]
	stopping atomic.Bool
	// looking is read-locked while a page reads the store, and locked to set closing
	// before the store is closed.
	looking sync.RWMutex
	closing bool
	health  sync.Mutex // held while readiness is published; taken before the server ends

	serving sync.WaitGroup // the goroutines that serve a listener
	phased  chan struct{}  // capacity 1: see enterPhase
	// given is closed when the process stops waiting: see abandon.
	given chan struct{}

	cluster clusterNode

	// Used only by the goroutine of Run.
	stopBy time.Time
	grace  *time.Timer // ends at stopBy; nil: nothing has ended the service yet
}

const (
	// minGrace is the least time for closing the store, whatever the setting.
	minGrace = time.Second
	// maxCloseShare bounds the part of the grace period that is reserved for closing the
	// store if calls do not finish: half of it, up to this. Guessed.
	maxCloseShare = 3 * time.Second
)

// Run serves until ctx ends, and then returns nil once everything is closed in order.
// ready, if not nil, is called when the service is ready for requests.
//
// ExitCode maps its errors. After an error nothing is left running, except disk operations
// that do not return and goroutines that wait for them.
//
// A store that failed because its file system became read-only is opened again read-only,
// and served at the same addresses, also if the system has chosen the ports. So is a node of a cluster
// that has received a checkpoint of another node.
//
// Run sets the memory limit of the process while it runs.
func Run(ctx context.Context, config Config, ready func(listen, admin net.Addr)) error {
	live := &liveSettings{asked: config}
	for {
		s, again, err := run(ctx, config, live, ready)
		if !again {
			return err
		}
		config.Listen, config.Admin = s.listen.Addr().String(), s.adminListen.Addr().String()
		config.ClusterListen = cmp.Or(s.cluster.addr(), config.ClusterListen)
		ready = nil
	}
}

// becameReadOnly reports whether a store that failed while it was served failed because its
// file system became read-only. The first error of the store may be a different one, since a
// file system usually becomes read-only after an error. If the disk hangs, becameReadOnly
// returns an error, or false when ctx ends.
func (s *process) becameReadOnly(ctx context.Context, err error) (bool, error) {
	if !errors.Is(err, kv.ErrFailed) || s.abandoned() || ctx.Err() != nil {
		return false, nil
	}
	found := make(chan error, 1)
	go func() { found <- engine.ReadOnlyCause(s.disk.fs, s.config.Data) }()
	select {
	case cause := <-found:
		if cause != nil {
			s.log.Warn("the store is opened again, to be read: its file system has become read-only", zap.Error(cause))
		}
		return cause != nil, nil
	case stuck := <-s.disk.stuck:
		return false, s.abandon(stuck)
	case <-ctx.Done():
		return false, nil
	}
}

// run opens the store and serves it until it ends. again reports that the store should be
// opened again.
func run(ctx context.Context, config Config, live *liveSettings, ready func(listen, admin net.Addr)) (s *process, again bool, err error) {
	if err := config.normalize(); err != nil {
		return nil, false, err
	}
	s = &process{
		config: config, live: live, log: config.Log, journal: newJournal(config.Log),
		disk:  newDiskWatch(config.FS, config.MaxSync, config.Log),
		ended: make(chan error, 2), phased: make(chan struct{}, 1), given: make(chan struct{}),
	}
	s.disk.changed = s.publishReady
	s.disk.start()
	defer s.disk.close()
	users := debug.SetMemoryLimit(-1) // math.MaxInt64 unless GOMEMLIMIT is set
	defer debug.SetMemoryLimit(users)
	debug.SetMemoryLimit(collectorLimit(config.Memory, users))
	if err := s.openFiles(); err != nil {
		return nil, false, err
	}
	defer s.watchFiles()()
	defer s.closeAudit()
	build := Build()
	fields := []zap.Field{zap.String("version", build.Version), zap.String("memory", bytesize.Format(config.Memory))}
	commit, _, _ := strings.Cut(build.Commit, "+") // without "+changes", for which a version has "+dirty"
	if !strings.Contains(build.Version, commit) {  // as that of an untagged commit does
		fields = append(fields, zap.String("commit", build.Commit))
	}
	s.log.Info("kvd starts", fields...)
	for _, line := range config.Chosen {
		s.log.Info("setting: " + line)
	}
	if err := s.bind(); err != nil {
		return nil, false, err
	}
	defer s.closeListeners()
	defer s.cluster.close()
	s.guard = s.pageGuard()
	s.servePages(build)
	defer s.closePages()
	if config.Supervisor.Send != nil {
		ended := make(chan struct{})
		defer close(ended)
		go s.notify(ended)
	}
	if err := s.open(ctx); err != nil {
		return nil, false, err
	}
	if ready != nil && ctx.Err() == nil {
		ready(s.listen.Addr(), s.adminListen.Addr())
	}
	err = s.wait(ctx)
	if s.installs(ctx, err) {
		return s, true, nil
	}
	again, stuck := s.becameReadOnly(ctx, err)
	return s, again, errors.Join(err, stuck)
}

// where returns where the data is, for people.
func (s *process) where() string {
	if s.config.Dev {
		return "memory (gone at exit)"
	}
	return s.config.Data
}

func (s *process) bind() (err error) {
	if s.listen, err = address.Listen(s.config.Listen); err != nil {
		return fmt.Errorf("%w for clients: %w; %s with --listen", ErrListen, err, listenAdvice(err))
	}
	if s.adminListen, err = s.listenAdmin(); err != nil {
		return errors.Join(fmt.Errorf("%w for operators: %w; %s with --admin", ErrListen, err, listenAdvice(err)), s.listen.Close())
	}
	return nil
}

// listenAdvice returns why the process cannot listen on an address, and what to do.
func listenAdvice(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process listens there, perhaps another kvd; stop it, or choose a free address"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "this user may not listen there, as with ports below 1024; grant CAP_NET_BIND_SERVICE, or choose a higher port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine does not have that address; choose one of its own"
	}
	return "choose another address"
}

// closeListeners closes the listeners. The server of a listener may have closed it already.
func (s *process) closeListeners() {
	for _, l := range []net.Listener{s.listen, s.adminListen} {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.Warn("closing a listener", zap.Error(err))
		}
	}
}

// pageTimeout bounds the time of an answer of the admin pages. Guessed: longer than any
// profile.
const pageTimeout = 10 * time.Minute

// servePages starts the admin pages.
func (s *process) servePages(build admin.Build) {
	s.pages = &http.Server{
		Handler:           admin.Handler(s.source(build), s.guard),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // no page reads a large body
		WriteTimeout:      pageTimeout,
		IdleTimeout:       time.Minute,
		ConnState:         newPageConns(s.config.MaxAdminConns).track,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(pageErrors{s.log}, "", 0),
	}
	s.serving.Go(func() {
		if err := s.pages.Serve(s.adminListen); !errors.Is(err, http.ErrServerClosed) {
			s.ended <- fmt.Errorf("serve operators: %w", err)
		}
	})
}

// closePages closes the admin pages. It is the last step of a stop, so that the pages show
// the state until then.
func (s *process) closePages() {
	if err := s.pages.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("closing the admin pages", zap.Error(err))
	}
	if !s.abandoned() {
		s.serving.Wait()
	}
}

// open recovers the store and starts to serve it.
func (s *process) open(ctx context.Context) error {
	s.log.Info("opening the store", zap.String("data", s.where()), zap.Stringer("durability", s.config.Durability))
	e, err := s.openStore(ctx)
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: --data %s: it, or one of its parents, is a file, not a directory; give a directory: %w", ErrUsage, s.config.Data, err)
	}
	if err != nil {
		return err
	}
	c := &s.config
	s.engine.Store(e)
	s.watchCluster()
	_, _, requests := split(c.dataBudget())
	srv := service.New(Store(e), service.Options{
		TLS:         s.tlsConfig(),
		Auth:        s.auth,
		Audit:       s.audit(),
		BufferBytes: requests,
		MaxDeadline: c.MaxCall,
		NetOnly:     !c.RawSockets,
		Reflection:  c.reflects(),
		Connections: c.MaxConns, PeerConnections: c.MaxPeerConns,
		SlowTime: c.SlowTime, SlowEntries: c.SlowCount, SlowHideKeys: c.SlowHide,
		SetSetting:  s.setSetting,
		Cluster:     s.cluster.operated(),
		Incarnation: s.cluster.incarnation(),
		Forward:     s.cluster.forwarder(),
		ReportError: func(id, method string, err error) {
			s.log.Error("request failed", zap.String("request", id), zap.String("method", method), zap.Error(err))
		},
	}, Protocols()...)
	s.server.Store(srv)
	s.cluster.serveForwards(srv)
	s.applyLive()
	s.publishReady()
	s.enterPhase()
	s.serving.Go(func() {
		if err := srv.Serve(s.listen); err != nil {
			s.ended <- fmt.Errorf("serve clients: %w", err)
		}
	})
	return nil
}

// openStore recovers the store. It returns early if the disk does not answer, or if the
// service should stop and the grace period is over.
func (s *process) openStore(ctx context.Context) (*engine.Engine, error) {
	type result struct {
		engine *engine.Engine
		err    error
	}
	opened := make(chan result)
	options := s.engineOptions()
	go func() {
		var e *engine.Engine
		err := s.config.checkData()
		if err == nil {
			err = s.config.checkArchive()
		}
		if err == nil {
			err = s.openCluster(&options)
		}
		if err == nil {
			e, err = engine.Open(s.config.Data, options)
		}
		select {
		case opened <- result{e, err}:
		case <-s.given:
			if err == nil {
				_ = e.Close() // the process is about to exit
			}
		}
	}()
	toEnd := ctx.Done()
	var graceOver <-chan time.Time
	for {
		select {
		case r := <-opened:
			return r.engine, r.err
		case err := <-s.disk.stuck:
			return nil, s.abandon(err)
		case <-toEnd:
			toEnd = nil
			s.beginGrace()
			graceOver = s.grace.C
		case <-graceOver:
			return nil, s.abandon(s.graceError())
		}
	}
}

func (s *process) engineOptions() engine.Options {
	c := &s.config
	policy := batcher.Policy{MaxOps: c.BatchOps, Linger: c.Linger}
	memtables, cache, _ := split(c.dataBudget())
	threshold := c.Threshold
	if threshold == 0 {
		threshold = math.MaxInt // longer than any value
	}
	return engine.Options{
		FS: s.disk.fs, Partitions: c.Partitions, Durability: c.Durability,
		MemtableBytes: memtables, CacheBytes: cache,
		Writes: policy, Reads: policy, FlushKeys: c.FlushKeys, ValueThreshold: threshold, SegmentBytes: c.segmentBytes,
		LowDiskBytes: uint64(c.LowDisk), ScrubInterval: c.Scrub, CompareInterval: c.Compare, AllowDamaged: c.AllowDamaged, Events: s.journal.listener(),
		Archive: engine.ArchiveOptions{Dir: c.Archive, Interval: c.ArchiveEvery, Backlog: c.ArchiveBacklog},
	}
}

// wait returns after the service has ended.
func (s *process) wait(ctx context.Context) error {
	e := s.engine.Load()
	select {
	case <-ctx.Done():
		s.beginGrace()
		return s.stop(s.callsGrace())
	case <-e.Failed():
		s.journal.failure(e.Err())
		err := s.stop(0)
		if errors.Is(err, e.Err()) { // as that of closing the store does
			return err
		}
		return errors.Join(e.Err(), err)
	case err := <-s.disk.stuck:
		return s.stopNow(err)
	case err := <-s.ended:
		return errors.Join(err, s.stop(s.live.grace()))
	}
}

// beginGrace starts the grace period, at the end of which the service ends, whatever hangs.
// Further calls do nothing.
func (s *process) beginGrace() {
	s.stopping.Store(true)
	s.enterPhase()
	if s.grace != nil {
		return
	}
	grace := max(s.live.grace(), minGrace)
	s.log.Info("stopping", zap.Duration("grace", grace))
	s.stopBy = time.Now().Add(grace)
	s.grace = time.NewTimer(grace)
}

// callsGrace returns how long calls in flight may take to finish.
func (s *process) callsGrace() time.Duration {
	return max(0, time.Until(s.stopBy)-min(s.live.grace()/2, maxCloseShare))
}

// graceError returns why the service did not stop within the grace period.
func (s *process) graceError() error {
	err := fmt.Errorf("%w of %v; nothing acknowledged is lost, the next start recovers it", ErrGraceEnded, max(s.live.grace(), minGrace))
	if disk := s.disk.check(); disk != nil {
		err = fmt.Errorf("%w: %w", err, disk)
	}
	return err
}

// stop ends the service: it gives calls in flight this long to finish, then closes the
// store. It returns early if the grace period is over, or a disk operation hangs for too
// long.
func (s *process) stop(calls time.Duration) error {
	s.beginGrace()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), calls)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.closeAll(ctx, calls) }()
	select {
	case err := <-closed:
		if err == nil {
			s.log.Info("stopped", zap.Duration("took", time.Since(begin)))
		}
		return err
	case err := <-s.disk.stuck:
		return s.abandon(err)
	case <-s.grace.C:
		return s.abandon(s.graceError())
	}
}

// publishReady tells the health service whether the disk answers and, of a node of a cluster,
// whether it can answer reads, until the service ends.
func (s *process) publishReady() {
	s.health.Lock()
	defer s.health.Unlock()
	if srv := s.server.Load(); srv != nil && !s.stopping.Load() {
		srv.SetReady(cmp.Or(s.disk.check(), s.cluster.unready()))
	}
}

// closeAll ends the server and then closes the store. Both may wait for the disk.
// stopping is set.
func (s *process) closeAll(ctx context.Context, calls time.Duration) error {
	s.health.Lock() // waits for a publishReady in progress
	//lint:ignore SA2001 nothing is done under the lock
	s.health.Unlock()
	follows := func() {}
	if calls > 0 && !s.abandoned() {
		follows = s.follow()
	}
	if err := s.server.Load().Shutdown(ctx); err != nil && calls > 0 && !s.abandoned() {
		s.log.Warn("calls in flight were cut off after their part of the grace period", zap.Duration("part", calls))
	}
	follows()
	s.looking.Lock()
	s.closing = true
	s.looking.Unlock()
	return s.engine.Load().Close()
}

// stopNow ends the service without waiting for anything.
func (s *process) stopNow(err error) error {
	err = s.abandon(err)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	go func() { _ = s.closeAll(now, 0) }() // the process is about to exit
	return err
}

// abandon stops waiting for the store and for calls in flight, since the disk may block
// them. The process is about to exit: as after kill -9, the next start recovers what was
// acknowledged.
func (s *process) abandon(err error) error {
	close(s.given)
	s.stopping.Store(true)
	s.log.Error("the store stopped for good", zap.Error(err))
	return err
}

func (s *process) abandoned() bool {
	select {
	case <-s.given:
		return true
	default:
		return false
	}
}
