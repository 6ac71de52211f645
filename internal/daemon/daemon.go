package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/server"
)

// service is one run of Run.
type service struct {
	config  Config
	log     *zap.Logger
	journal *journal

	listen, adminListen net.Listener
	pages               *http.Server
	ended               chan error // capacity 2: what a listener's Serve returned

	// Set when the store is open; the admin pages look meanwhile.
	engine   atomic.Pointer[engine.Engine]
	server   atomic.Pointer[server.Server]
	stopping atomic.Bool
	// looking is held, shared, while a page reads the store, and taken before the
	// store is closed; then closing is set.
	looking sync.RWMutex
	closing bool

	serving   sync.WaitGroup // the goroutines that serve a listener
	abandoned bool           // nothing may be waited for: see abandon
}

// Run serves until ctx ends, and then returns nil once everything is closed in
// order. ready, if not nil, is called when requests are taken.
//
// Errors: what ExitCode knows. After one nothing is left running, but for a sync
// that does not return.
//
// Run sets the memory limit of the process for as long as it runs.
func Run(ctx context.Context, config Config, ready func(listen, admin net.Addr)) error {
	if err := config.normalize(); err != nil {
		return err
	}
	s := &service{
		config: config, log: config.Log, journal: newJournal(config.Log, config.MaxSync),
		ended: make(chan error, 2),
	}
	defer s.journal.close()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(s.memoryLimit()))
	build := Build()
	s.log.Info("kvd starts", zap.String("version", build.Version), zap.String("commit", build.Commit),
		zap.String("data", s.where()), zap.Stringer("durability", config.Durability),
		zap.String("memory", FormatBytes(config.Memory)), zap.Strings("settings", config.Chosen))
	if err := s.bind(); err != nil {
		return err
	}
	defer s.closeListeners()
	s.servePages(build)
	defer s.closePages()
	if err := s.open(); err != nil {
		return err
	}
	if ready != nil {
		ready(s.listen.Addr(), s.adminListen.Addr())
	}
	return s.wait(ctx)
}

// where says where the data is.
func (s *service) where() string {
	if s.config.Dev {
		return "memory (gone at exit)"
	}
	return s.config.Data
}

// memoryLimit is what the garbage collector works towards. A store in memory
// comes on top of the budget.
func (s *service) memoryLimit() int64 {
	if s.config.Dev {
		return 2 * s.config.Memory
	}
	return s.config.Memory
}

func (s *service) bind() (err error) {
	if s.listen, err = net.Listen("tcp", s.config.Listen); err != nil {
		return fmt.Errorf("%w for clients: %w; is another kvd running? Choose a free address with --listen", ErrListen, err)
	}
	if s.adminListen, err = net.Listen("tcp", s.config.Admin); err != nil {
		return errors.Join(fmt.Errorf("%w for operators: %w; choose a free address with --admin", ErrListen, err), s.listen.Close())
	}
	return nil
}

// closeListeners closes what may be closed already: whoever serves a listener
// closes it too.
func (s *service) closeListeners() {
	for _, l := range []net.Listener{s.listen, s.adminListen} {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.log.Warn("closing a listener", zap.Error(err))
		}
	}
}

// servePages starts the admin pages.
func (s *service) servePages(build admin.Build) {
	s.pages = &http.Server{
		Handler:           admin.Handler(s.source(build)),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          zap.NewStdLog(s.log),
	}
	s.serving.Go(func() {
		if err := s.pages.Serve(s.adminListen); !errors.Is(err, http.ErrServerClosed) {
			s.ended <- fmt.Errorf("serve operators: %w", err)
		}
	})
}

// closePages is the last step: until here the pages said what is going on.
func (s *service) closePages() {
	if err := s.pages.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("closing the admin pages", zap.Error(err))
	}
	if !s.abandoned {
		s.serving.Wait()
	}
}

// open recovers the store and begins to serve it.
func (s *service) open() error {
	c := &s.config
	policy := batcher.Policy{MaxOps: c.BatchOps, Linger: c.Linger}
	memtables, cache := engine.Shares(c.Memory)
	threshold := c.Threshold
	if threshold == 0 {
		threshold = math.MaxInt // no value is as long
	}
	e, err := engine.Open(c.Data, engine.Options{
		FS: c.FS, Partitions: c.Partitions, Durability: c.Durability,
		MemtableBytes: memtables, CacheBytes: cache,
		Writes: policy, Reads: policy, FlushKeys: c.FlushKeys, ValueThreshold: threshold, SegmentBytes: c.segmentBytes,
		LowDiskBytes: uint64(c.LowDisk), Events: s.journal.listener(),
	})
	if err != nil {
		return err
	}
	s.engine.Store(e)
	srv := server.New(Store(e), server.Options{
		BufferBytes: c.Memory / bufferShare,
		NetOnly:     !c.RawSockets,
		SlowTime:    c.SlowTime, SlowEntries: c.SlowCount, SlowHideKeys: c.SlowHide,
		ReportError: func(id, method string, err error) {
			s.log.Error("request failed", zap.String("request", id), zap.String("method", method), zap.Error(err))
		},
	})
	s.server.Store(srv)
	s.serving.Go(func() {
		if err := srv.Serve(s.listen); err != nil {
			s.ended <- fmt.Errorf("serve clients: %w", err)
		}
	})
	return nil
}

// wait returns when the service has ended.
func (s *service) wait(ctx context.Context) error {
	e := s.engine.Load()
	select {
	case <-ctx.Done():
		s.log.Info("stopping", zap.Duration("grace", s.config.Grace))
		return s.stop(s.config.Grace)
	case <-e.Failed():
		s.journal.failure(e.Err())
		return errors.Join(e.Err(), s.stop(0))
	case err := <-s.journal.stuck:
		return s.abandon(err)
	case err := <-s.ended:
		return errors.Join(err, s.stop(s.config.Grace))
	}
}

// stop ends the service: calls in flight have so long to finish, then the store
// is closed.
func (s *service) stop(grace time.Duration) error {
	s.stopping.Store(true)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := s.server.Load().Shutdown(ctx); err != nil && grace > 0 {
		s.log.Warn("calls in flight were cut off after the grace period", zap.Duration("grace", grace))
	}
	s.looking.Lock()
	s.closing = true
	s.looking.Unlock()
	closed := make(chan error, 1)
	go func() { closed <- s.engine.Load().Close() }()
	select {
	case err := <-closed:
		if err == nil {
			s.log.Info("stopped", zap.Duration("took", time.Since(begin)))
		}
		return err
	case err := <-s.journal.stuck:
		return s.abandon(err)
	}
}

// abandon ends the service although a sync is stuck: closing the store would wait
// for it, and so may whoever holds up the end of the server. The process is about
// to exit.
func (s *service) abandon(err error) error {
	s.log.Error("the store stopped for good", zap.Error(err))
	s.abandoned = true
	go func() {
		at, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.server.Load().Shutdown(at) // the error is that at has ended
	}()
	return err
}
