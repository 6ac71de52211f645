package daemon

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/bytesize"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/event"
)

// source returns what the admin pages show of the service.
func (s *process) source(build admin.Build) *admin.Source {
	return &admin.Source{
		Build:     build,
		Store:     s.storeStats,
		Member:    s.cluster.member,
		Traffic:   s.traffic,
		Incidents: s.incidents,
		Checks:    s.checks,
		Alive:     s.alive,
		Facts: []admin.Fact{
			{Name: "data", Value: s.where()},
			{Name: "durability", Value: s.config.Durability.String()},
			{Name: "memory", Value: bytesize.Format(s.config.Memory)},
			{Name: "settings", Value: strings.Join(s.config.Chosen, ", ")},
		},
	}
}

// storeStats returns the store's counters while it is open.
func (s *process) storeStats() (engine.Stats, bool) {
	s.looking.RLock()
	defer s.looking.RUnlock()
	e := s.engine.Load()
	if e == nil || s.closing {
		return engine.Stats{}, false
	}
	return e.Stats(), true
}

func (s *process) incidents() admin.Incidents {
	incidents := s.journal.incidents()
	incidents.SlowDisk = s.disk.episodes.Load()
	incidents.ReloadFailures, incidents.ReloadFailing = s.live.failures.Load(), s.live.failing.Load()
	for _, w := range s.watchers() {
		incidents.ReloadFailures += w.Failures()
		incidents.ReloadFailing = incidents.ReloadFailing || w.Failing()
	}
	incidents.DamagedPlaces = len(s.damages())
	if s.audited != nil {
		incidents.AuditDropped = s.audited.Dropped()
	}
	incidents.PagesRefused = s.guard.Refused()
	if s.tls != nil {
		incidents.CertificateEnds = s.tls.Ends()
	}
	return incidents
}

func (s *process) alive() error {
	if e := s.engine.Load(); e != nil {
		return e.Err()
	}
	return nil
}

var (
	errOpening  = errors.New("the store is being opened")
	errStopping = errors.New("the service is stopping")
)

// checks returns the conditions of readiness. A store that takes no puts because of its disk
// or file system is not ready, although it answers reads.
func (s *process) checks() []admin.Check {
	open, failed, running := admin.Check{Name: "open"}, admin.Check{Name: "store"}, admin.Check{Name: "running"}
	writes := admin.Check{Name: "writes"}
	if s.server.Load() == nil {
		open.Err = errOpening
	} else {
		failed.Err = s.alive()
		if err := s.engine.Load().ReadOnly(); err != nil {
			writes.Err = fmt.Errorf("%w (--data %s)", err, s.where())
		}
	}
	if s.stopping.Load() {
		running.Err = errStopping
	}
	disk := admin.Check{Name: "disk", Err: s.disk.check()}
	checks := append([]admin.Check{open, failed, running, disk, writes, {Name: "data", Note: s.damage()}}, s.archiveCheck()...)
	return append(checks, s.cluster.check()...)
}

// damages returns the damaged places that are known, while the store is open.
func (s *process) damages() []event.Damage {
	s.looking.RLock()
	defer s.looking.RUnlock()
	e := s.engine.Load()
	if e == nil || s.closing {
		return nil
	}
	return e.Damages()
}

// damage names what is damaged in a few words, empty if nothing is known to be. A damaged store
// is ready: it serves everything else.
func (s *process) damage() string {
	places := s.damages()
	if len(places) == 0 {
		return ""
	}
	first := places[0]
	text := fmt.Sprintf("%d damaged places, reads of their keys fail; the first is in %s", len(places), first.File)
	if first.Offset >= 0 {
		text += fmt.Sprintf(" at offset %d", first.Offset)
	}
	return text + ": " + first.Reason + "; kvd scrub lists all"
}

// archiveCheck returns how far the archive is, if there is one. A store whose log cannot be
// archived is ready all the same.
func (s *process) archiveCheck() []admin.Check {
	stats, ok := s.storeStats()
	if !ok || stats.Archive == nil {
		return nil
	}
	return []admin.Check{{Name: "archive", Note: archiveNote(stats.Archive)}}
}

func archiveNote(a *backup.ArchiveStatus) string {
	note := fmt.Sprintf("up to version %d", a.Version)
	if a.Err != nil {
		note = fmt.Sprintf("behind since %s at version %d: %v", a.Since.UTC().Format(time.RFC3339), a.Version, a.Err)
	}
	if a.Backlog > 0 {
		note += fmt.Sprintf("; %s of the commit log wait", bytesize.Format(a.Backlog))
	}
	if a.Gaps > 0 {
		note += fmt.Sprintf("; %d gaps since the start, which no restore crosses: make a backup", a.Gaps)
	}
	return note
}

// traffic converts the server's counters for the admin pages.
func (s *process) traffic() admin.Traffic {
	srv := s.server.Load()
	if srv == nil {
		return admin.Traffic{}
	}
	st := srv.Stats()
	t := admin.Traffic{
		Shed: st.Shed, Gates: st.Gates, Transactions: st.Transactions, Panics: st.Panics, Unauthenticated: st.Unauthenticated, Denied: st.Denied, Quotas: st.Quotas, Connections: st.Connections, Accepted: st.Accepted,
		Raw: st.Raw, RawAccepted: st.RawAccepted, RawFrames: st.RawFrames,
		Slow: st.Slow, Streams: st.Streams, Bytes: st.Bytes, Waiting: st.Waiting, WaitingBytes: st.WaitingBytes, Frames: st.Frames,
	}
	for _, r := range st.Requests {
		t.Requests = append(t.Requests, admin.RequestCount{Method: r.Method, Code: r.Code.String(), Count: r.Count})
	}
	for _, stage := range st.Stages {
		t.Stages = append(t.Stages, admin.StageTimes(stage))
	}
	return t
}
