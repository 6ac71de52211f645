package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/kvd-db/kvd/bench/disk"
	"github.com/kvd-db/kvd/bench/process"
	"github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/bench/service/client"
	"github.com/kvd-db/kvd/bench/service/server"
)

// arena runs contestants alternately.
type arena struct {
	*options
	dir      string // temporary
	kinds    map[string]*server.Kind
	servers  map[string]*server.Server // those used so far, all of them frozen
	skipped  map[string]bool           // contestants already reported as missing
	progress *report.Progress
	report   func(slot) error // called after each slot
}

// withArena calls use with an arena, which it cleans up afterwards.
func withArena(o *options, stderr io.Writer, use func(*arena) error) (err error) {
	a := &arena{options: o, servers: make(map[string]*server.Server), skipped: make(map[string]bool),
		progress: report.NewProgress(stderr)}
	if a.kinds, err = kinds(o.kvd); err != nil {
		return err
	}
	lines, err := report.CreateLines(o.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lines.Close()) }()
	a.report = func(s slot) error { return lines.Add(&s) }
	if a.dir, err = os.MkdirTemp(o.dir, ".bench."); err != nil {
		return err
	}
	defer func() {
		for _, s := range a.servers {
			err = errors.Join(err, s.Stop())
		}
		err = errors.Join(err, os.RemoveAll(a.dir))
	}()
	return use(a)
}

// hold runs the contestants of a cell alternately and returns the results. All slots of
// a round follow one another, in a different order in each round, so that a ratio
// compares what was measured seconds apart.
func (a *arena) hold(ctx context.Context, c *cell) (slots []slot, err error) {
	var who []*contestant
	for _, name := range c.contestants {
		one, err := findContestant(name)
		if err != nil {
			return nil, err
		}
		if a.takesPart(one, c.sync) {
			who = append(who, one)
		}
	}
	rounds := a.rounds
	if c.overload {
		rounds = 1
	}
	for round := range rounds {
		for i := range who {
			one := who[(i+round)%len(who)]
			a.progress.Show("%s: round %d of %d, %s", c.name, round+1, rounds, one.name)
			s := slot{Cell: c.name, Contestant: one.name, Round: round}
			if err := a.slot(ctx, c, one, &s); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", c.name, one.name, err)
			}
			if err := a.report(s); err != nil {
				return nil, err
			}
			slots = append(slots, s)
		}
	}
	a.progress.Line("%s: %d contestants, %d rounds", c.name, len(who), rounds)
	return slots, nil
}

// takesPart reports whether a contestant can run, and prints once why it cannot.
func (a *arena) takesPart(c *contestant, sync bool) bool {
	if len(a.only) > 0 && !a.only[c.name] {
		return false
	}
	why := error(nil)
	if kind := a.kinds[c.serverFor(sync)]; kind != nil {
		why = kind.Find()
	}
	if program := c.program(); program != "" && why == nil {
		_, why = exec.LookPath(program)
	}
	if why != nil && !a.skipped[c.name] {
		a.skipped[c.name] = true
		a.progress.Line("SKIPPED: %s: %v", c.name, why)
	}
	return why == nil
}

// slot measures one contestant once.
func (a *arena) slot(ctx context.Context, c *cell, who *contestant, s *slot) error {
	load := c.loadFor(who, s.Round)
	job := &assignment{
		Client: who.client, Clients: c.clients, Load: &load,
		Options: client.Options{Sync: c.sync, Callers: c.load.Callers, Dir: a.dir, Timeout: a.timeout},
	}
	if c.clients > 0 {
		job.Options.Conns = 1
	}
	if c.overload {
		job.Overload, job.Options.Timeout = a.overload, patience
	}
	name := who.serverFor(c.sync)
	if name == "" {
		return a.measure(ctx, who, job, s)
	}
	server, err := a.server(ctx, name)
	if err != nil {
		return err
	}
	if err := server.Thaw(); err != nil {
		return err
	}
	if who.tool {
		o, err := a.runTool(ctx, c, server)
		if err == nil {
			s.Run = *o
		}
		return errors.Join(err, disk.Sync(a.dir), server.Freeze())
	}
	job.Options.Address, job.ServerPIDs = server.Address, server.PIDs()
	return errors.Join(a.measure(ctx, who, job, s), server.Freeze())
}

// measure runs the job of a contestant whose server is running.
func (a *arena) measure(ctx context.Context, who *contestant, job *assignment, s *slot) error {
	idle, err := holdIdle(ctx, who.idle, job)
	if err != nil {
		return err
	}
	r, err := a.do(ctx, who.name, job)
	if err != nil {
		return errors.Join(err, idle.end())
	}
	s.Run = *r.Outcome
	s.Run.Held, err = idle.count()
	return errors.Join(err, idle.end(), disk.Sync(a.dir)) // synced, so that no contestant waits for the writes of another
}

// hangTime is how much longer than planned an assignment may take, and fillTime how long a key may
// take that is put. Guessed: ten times what the slowest server takes.
const (
	hangTime = 3 * time.Minute
	fillTime = time.Millisecond
)

// do runs an assignment in a new process, so that the state of one client does not slow
// down the next.
func (a *arena) do(ctx context.Context, name string, job *assignment) (*answer, error) {
	w, err := process.StartWorker(ctx, name, "worker")
	if err != nil {
		return nil, err
	}
	allowed := hangTime + job.Overload
	if job.Fill != nil {
		allowed += time.Duration(job.Fill.Keys) * fillTime
	}
	hang := time.AfterFunc(allowed, func() { _ = w.Kill() }) // the goroutine that waits for the answer reports it
	defer hang.Stop()
	answer, err := ask(w, job)
	return answer, errors.Join(err, w.Close())
}

// ask sends an assignment and waits for the answer.
func ask(w *process.Worker, job any) (*answer, error) {
	if err := w.Tell(job); err != nil {
		return nil, err
	}
	var r answer
	if err := w.Hear(&r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return &r, nil
}

// fillers is the number of callers that fill a server.
const fillers = 512

// server returns a frozen server, which it starts and fills if necessary.
func (a *arena) server(ctx context.Context, name string) (*server.Server, error) {
	if s := a.servers[name]; s != nil {
		return s, nil
	}
	if err := disk.Enough(a.dir, 0); err != nil {
		return nil, err
	}
	s, err := server.Start(ctx, a.kinds[name], a.dir)
	if err != nil {
		return nil, err
	}
	a.servers[name] = s
	begin := time.Now()
	a.progress.Show("%s is filled", name)
	filled, err := a.fill(ctx, s)
	if err != nil {
		return nil, err
	}
	if filled {
		took := time.Since(begin)
		if err := s.Settle(ctx); err != nil {
			return nil, err
		}
		a.progress.Line("%s: %d keys in %.1f s, settled in %.1f s", name, a.keysOf(s), took.Seconds(), (time.Since(begin) - took).Seconds())
	}
	return s, errors.Join(disk.Sync(a.dir), s.Freeze())
}

// keysOf is how many keys a server is filled with.
func (a *arena) keysOf(s *server.Server) int {
	if s.Kind.Cluster() {
		return min(a.keys, clusterKeys)
	}
	return a.keys
}

// fill puts the keys of a server, and returns false if it stores none.
func (a *arena) fill(ctx context.Context, s *server.Server) (filled bool, err error) {
	if strings.HasSuffix(s.Kind.Name, apart) {
		return true, client.FillNumbered(ctx, s.Address, a.keys, a.valueBytes)
	}
	by := loader(s.Kind.Name)
	if by == "" {
		return false, nil
	}
	_, err = a.do(ctx, s.Kind.Name, &assignment{
		Client: by, Options: client.Options{Address: s.Address, Callers: fillers, Timeout: a.timeout},
		Fill: &filling{uint64(a.keysOf(s)), a.valueBytes, fillers, s.Kind.Cluster()},
	})
	return true, err
}
