package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// ArchivedLog is the log of an open store. *wal.Log, with wal.Options.Archive, implements it.
type ArchivedLog interface {
	Durable() []wal.DurableRange
	Archived(segment uint64)
	SyncAll(ctx context.Context) error
}

// ArchiverOptions configure an Archiver. All fields are required.
type ArchiverOptions struct {
	FS  vfs.FS // of the archive
	Dir string
	// Interval is how long what is written may be missing in the archive.
	Interval time.Duration
	// Backlog bounds the bytes of segments that wait for the archive. Beyond that the oldest
	// may be deleted, which leaves a gap.
	Backlog int64

	Log            ArchivedLog
	LogFS          vfs.FS
	LogDir         string
	StoreID, Epoch uint64
	Visible        func() kv.SeqNum // the version that readers see
	Clock          func() uint64    // see Piece.Clock
	Pressed        func() bool      // the disk of the log needs the space of segments
	Events         *event.Listener
}

// ArchiveStatus says how far an archive is.
type ArchiveStatus struct {
	Version kv.SeqNum // the newest in the archive
	Time    time.Time // when the archive last had everything acknowledged by then, or when the archiver started
	Backlog int64     // bytes of segments that wait
	Pieces  uint64    // written since the start
	Bytes   uint64    // of these
	Errors  uint64    // attempts that failed
	Gaps    uint64    // since the start
	Err     error     // why the last attempt failed; nil: it did not
	Since   time.Time // if Err is not nil: of the first of the attempts that failed
}

const (
	archiveTick = time.Second
	// mostRetry bounds the pause after an attempt that failed.
	mostRetry = 30 * time.Second
)

// Archiver copies the log of an open store to an archive: each segment when it has ended,
// before the log may delete it, and every Interval what is synced of the last segment.
//
//	A1. While the archive can be written to, no segment is deleted before it is archived.
//	A2. While it cannot, segments are kept up to Backlog, or until the disk of the log needs
//	    the space. Then the oldest are given up. That is reported, and the next piece of the
//	    archive says why the log before it is missing.
//	A3. A piece holds only what is synced: a crash of the store takes nothing from the log
//	    that the archive has.
type Archiver struct {
	o    ArchiverOptions
	stop chan struct{}
	done sync.WaitGroup

	// Used by one goroutine at a time: that of run, after it that of Close.
	archive   *Archive // nil: not open
	opened    bool     // it was
	connected bool     // it was compared with the log
	partly    time.Time
	retry     time.Duration
	retryAt   time.Time

	mu      sync.Mutex
	marks   []Mark // that no piece has
	marking bool   // the version at the start was noted
	last    *Piece // the newest; nil: there is none
	given   uint64 // segments up to this number were given up
	gap     string // why; empty: none were since last
	status  ArchiveStatus
}

// StartArchiver opens the archive, or makes it, and starts to copy the log to it. If the
// archive cannot be reached, it tries again later.
//
// Errors: kv.ErrInvalidArgument if the directory holds other files, or the log of another
// store, or of another life of this one: of the store of which this one is a restored copy;
// kv.ErrUnsupportedVersion; vfs.ErrLocked.
func StartArchiver(o ArchiverOptions) (*Archiver, error) {
	a := &Archiver{o: o, stop: make(chan struct{})}
	a.status.Time = time.Now()
	if err := a.connect(); err != nil {
		if errors.Is(err, kv.ErrInvalidArgument) || errors.Is(err, kv.ErrUnsupportedVersion) || errors.Is(err, vfs.ErrLocked) {
			return nil, errors.Join(fmt.Errorf("archive the commit log: %w", err), a.closeArchive())
		}
		a.failed(err, time.Now())
	}
	a.mark() // before the first write
	a.done.Go(a.run)
	a.done.Go(a.watch)
	return a, nil
}

// Status returns how far the archive is.
func (a *Archiver) Status() ArchiveStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Close archives everything that is appended, reports what failed, and ends. The log is open
// still.
func (a *Archiver) Close() {
	close(a.stop)
	a.done.Wait()
	a.mark()
	now := time.Now()
	err := a.step(context.Background(), now, true)
	if err == nil {
		err = a.confirm(now)
	}
	if err = errors.Join(err, a.closeArchive()); err != nil {
		a.failed(err, now)
		return
	}
	a.succeeded(now, true)
}

// confirm writes into the newest piece that the archive has everything up to now, and the marks
// since. Without it a stop at which nothing is left to archive would leave unknown which version
// readers saw since that piece.
func (a *Archiver) confirm(now time.Time) error {
	a.mu.Lock()
	last := a.last
	a.mu.Unlock()
	if last == nil || last.Version < a.o.Visible() || !now.After(last.Until.Time) {
		return nil
	}
	p := *last
	p.Until = momentOf(now)
	return a.publish(&p)
}

func (a *Archiver) closeArchive() error {
	if a.archive == nil {
		return nil
	}
	return a.archive.close()
}

func (a *Archiver) run() {
	defer a.o.Events.Guard()
	tick := time.NewTicker(min(archiveTick, a.o.Interval))
	defer tick.Stop()
	for {
		a.try()
		select {
		case <-a.stop:
			return
		case <-tick.C:
		}
	}
}

// watch notes which version readers see, and gives segments up if too many wait, also while an
// attempt to archive them hangs: what was written meanwhile is archived later, with its times.
func (a *Archiver) watch() {
	defer a.o.Events.Guard()
	tick := time.NewTicker(archiveTick)
	defer tick.Stop()
	for {
		select {
		case <-a.stop:
			return
		case <-tick.C:
			a.mark()
			a.giveUp()
		}
	}
}

// try archives what is due, unless an attempt failed a short time ago.
func (a *Archiver) try() {
	a.mark()
	now := time.Now()
	if now.Before(a.retryAt) {
		return
	}
	partly := now.Sub(a.partly) >= a.o.Interval
	if err := a.step(context.Background(), now, partly); err != nil {
		a.failed(err, now)
		return
	}
	a.succeeded(now, partly)
}

// mark notes which version readers see now, unless it did before. At the start it always does:
// the times since the last mark of an earlier run are not known.
func (a *Archiver) mark() {
	a.mu.Lock()
	defer a.mu.Unlock()
	version := a.o.Visible()
	now := time.Now() // after that: what is written later is not of an earlier time
	if n := len(a.marks); n > 0 && a.marks[n-1].Version >= version || n == 0 && a.marking && a.markedLocked(version) {
		return
	}
	a.marking = true
	if len(a.marks) == maxMarks { // keep every second one
		kept := a.marks[:0]
		for i := 0; i < len(a.marks); i += 2 {
			kept = append(kept, a.marks[i])
		}
		a.marks = kept
	}
	a.marks = append(a.marks, Mark{At: momentOf(now.Add(time.Millisecond - 1)), Version: version})
}

// markedLocked reports whether the last piece has a mark of a version.
func (a *Archiver) markedLocked(version kv.SeqNum) bool {
	if a.last == nil || len(a.last.Marks) == 0 {
		return false
	}
	return a.last.Marks[len(a.last.Marks)-1].Version >= version
}

// step archives the segments that have ended and, if partly, what is synced of the next one.
func (a *Archiver) step(ctx context.Context, now time.Time, partly bool) error {
	if err := a.connect(); err != nil {
		return err
	}
	if partly {
		if err := a.o.Log.SyncAll(ctx); err != nil {
			return err
		}
	}
	for _, r := range a.o.Log.Durable() {
		from, missing := a.from(r)
		if missing && (r.End == 0 || partly && a.hasNews(r, from)) {
			if err := a.add(ctx, now, r, from); err != nil {
				return err
			}
		}
		if r.End == 0 {
			a.o.Log.Archived(r.Segment)
		}
	}
	return nil
}

// from returns the offset from which on a segment is missing in the archive, if it is.
func (a *Archiver) from(r wal.DurableRange) (from int64, missing bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch last := a.last; {
	case r.Segment <= a.given || last != nil && r.Segment < last.Segment:
		return 0, false
	case last == nil || r.Segment > last.Segment:
		return wal.FirstFrame, true
	default:
		return last.To, !last.Ends && (r.End == 0 || last.To < r.End)
	}
}

// hasNews reports whether a segment that has not ended has records that the archive lacks:
// an idle log adds marks, which are worth no piece.
func (a *Archiver) hasNews(r wal.DurableRange, from int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last == nil || a.last.Version < a.o.Visible() || r.End-from > 4<<10
}

// add writes a piece.
func (a *Archiver) add(ctx context.Context, now time.Time, r wal.DurableRange, from int64) error {
	p := &Piece{Format: pieceFormat, Store: hex64(a.o.StoreID), Epoch: hex64(a.o.Epoch), Segment: r.Segment, From: from, Time: momentOf(now)}
	if r.End != 0 {
		p.Until = p.Time // the log was synced after that
	}
	err := a.archive.write(ctx, p, func(w io.Writer) (wal.Frames, error) {
		return wal.CopyFrames(ctx, a.o.LogFS, a.o.LogDir, a.o.StoreID, r.Segment, from, r.End, w)
	})
	if errors.Is(err, wal.ErrCopiedSegment) {
		a.lose(r.Segment, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("segment %d: %w", r.Segment, err)
	}
	p.Gap = a.gapBefore(p)
	if err := a.publish(p); err != nil {
		return err
	}
	a.added(p)
	return nil
}

// publish writes the description of a piece, with the marks that belong to it.
func (a *Archiver) publish(p *Piece) error {
	p.Clock = a.o.Clock()
	room := maxMarks - len(p.Marks)
	marks := a.marksUpTo(p.Version)
	p.setMarks(slices.Concat(p.Marks, marks[:min(len(marks), room)]))
	if err := a.archive.publish(p); err != nil {
		return err
	}
	if err := a.archive.there(); err != nil {
		return err
	}
	a.dropMarks(p)
	return nil
}

// marksUpTo returns the marks that no piece has, of versions up to one. The caller may keep them.
func (a *Archiver) marksUpTo(version kv.SeqNum) (marks []Mark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.marks {
		if m.Version <= version {
			marks = append(marks, m)
		}
	}
	return marks
}

// dropMarks forgets the marks that a piece has, or has in their place: some may have been left out
// meanwhile, to make room.
func (a *Archiver) dropMarks(p *Piece) {
	if len(p.Marks) == 0 {
		return
	}
	last := p.Marks[len(p.Marks)-1].Version
	a.mu.Lock()
	defer a.mu.Unlock()
	a.marks = slices.DeleteFunc(a.marks, func(m Mark) bool { return m.Version <= last })
}

// gapBefore returns why the log before a piece is not in the archive; empty if it is.
func (a *Archiver) gapBefore(p *Piece) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.last == nil || !p.follows(a.last) && a.gap != "":
		return a.gap
	case p.follows(a.last):
		return ""
	}
	return fmt.Sprintf("the log from version %d to %d was deleted before it was archived, since the server ran without the archive, or could not write to it",
		a.last.Version, p.After)
}

// added notes that the archive has a piece.
func (a *Archiver) added(p *Piece) {
	a.mu.Lock()
	told := a.gap != ""
	if a.last = p; a.given <= p.Segment {
		a.gap = ""
	}
	a.status.Version = p.Version
	a.status.Pieces++
	a.status.Bytes += uint64(p.To - p.From)
	if p.Gap != "" && !told {
		a.status.Gaps++
	}
	a.mu.Unlock()
	if p.Gap != "" && !told {
		a.report(event.Archive{Gap: p.Gap})
	}
}

func (a *Archiver) count(f func(*ArchiveStatus)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.status)
}

func (a *Archiver) report(e event.Archive) {
	if a.o.Events != nil && a.o.Events.Archive != nil {
		a.o.Events.Archive(e)
	}
}

func (a *Archiver) succeeded(now time.Time, partly bool) {
	if partly {
		a.partly = now
	}
	a.retry = 0
	var ended error
	a.count(func(s *ArchiveStatus) {
		ended = s.Err
		s.Err, s.Since = nil, time.Time{}
		if partly {
			s.Time = now
		}
	})
	if ended != nil {
		a.report(event.Archive{Recovered: true})
	}
}

func (a *Archiver) failed(err error, now time.Time) {
	if errors.Is(err, errNotYet) {
		return
	}
	a.retry = min(mostRetry, max(archiveTick, 2*a.retry))
	a.retryAt = now.Add(a.retry)
	began := false
	a.count(func(s *ArchiveStatus) {
		if began = s.Err == nil; began {
			s.Since = now
		}
		s.Err = err
		s.Errors++
	})
	if began {
		a.report(event.Archive{Err: err})
	}
}

// giveUp counts what waits for the archive, and gives the oldest segments up if that is too
// much.
func (a *Archiver) giveUp() {
	var waiting []wal.DurableRange
	backlog := int64(0)
	for _, r := range a.o.Log.Durable() {
		if _, missing := a.from(r); missing && r.End == 0 {
			waiting = append(waiting, r)
			backlog += r.Bytes
		}
	}
	limit := a.o.Backlog
	if a.o.Pressed() && a.Status().Err != nil {
		limit = 0
	}
	for _, r := range waiting {
		if backlog <= limit {
			break
		}
		a.lose(r.Segment, a.Status().Err)
		backlog -= r.Bytes
	}
	a.count(func(s *ArchiveStatus) { s.Backlog = backlog })
}

// lose gives a segment up.
func (a *Archiver) lose(segment uint64, err error) {
	if err == nil {
		err = errors.New("the archive takes it more slowly than it is written, or does not answer")
	}
	a.mu.Lock()
	first := a.gap == ""
	a.given = max(a.given, segment)
	a.gap = fmt.Sprintf("the log up to segment %d was given up at %s: %v", segment, momentOf(time.Now()), err)
	told := a.gap
	if first {
		a.status.Gaps++
	}
	a.mu.Unlock()
	a.o.Log.Archived(segment)
	if first {
		a.report(event.Archive{Err: err, Gap: told})
	}
}

// errNotYet: the log is suspended, so that it cannot be compared with the archive.
var errNotYet = errors.New("the commit log is suspended")

// connect opens the archive and finds where in the log it ends, unless that is known.
func (a *Archiver) connect() (err error) {
	if err := a.open(); err != nil {
		return err
	}
	if a.connected {
		return nil
	}
	// The process that wrote the newest pieces may have been killed before it synced their names.
	if err := a.o.FS.SyncDir(a.o.Dir); err != nil {
		return err
	}
	pieces, err := a.archive.Pieces()
	if err != nil {
		return err
	}
	var last *Piece
	if n := len(pieces); n > 0 {
		last = pieces[n-1]
		if err := a.compare(last); err != nil {
			return err
		}
	}
	a.connected = true
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last = last; last != nil {
		a.status.Version = last.Version
	}
	return nil
}

// open opens the archive. If it is open, open makes sure that it is still there. An archive
// that was there at the start is not made again: its disk may not be mounted, and what is
// written to an empty directory in its place would be missing in the archive.
func (a *Archiver) open() (err error) {
	if a.archive != nil {
		err := a.archive.there()
		if errors.Is(err, errGone) {
			err = errors.Join(err, a.archive.close())
			a.archive, a.connected = nil, false
		}
		return err
	}
	if a.opened {
		if err := checkMarker(a.o.FS, a.o.Dir, archiveMarkerName, archiveMarker, archiveKind); err != nil {
			return fmt.Errorf("%w; if its disk is not mounted, mount it; to begin a new archive in an empty directory, restart the server", err)
		}
	}
	if a.archive, err = lockArchive(a.o.FS, a.o.Dir); err != nil {
		return err
	}
	a.opened = true
	return nil
}

// compare makes sure that the log is the one of which the archive has the piece.
func (a *Archiver) compare(last *Piece) error {
	if uint64(last.Store) != a.o.StoreID {
		return fmt.Errorf("%w: %s holds the log of the store %016x, and this is the store %016x; give each store an archive of its own",
			kv.ErrInvalidArgument, a.o.Dir, uint64(last.Store), a.o.StoreID)
	}
	other := fmt.Errorf("%w: %s holds another history of this store: it was restored from a backup, or is a copy; give it an archive of its own",
		kv.ErrInvalidArgument, a.o.Dir)
	all := a.o.Log.Durable()
	if len(all) == 0 {
		return errNotYet
	}
	if all[len(all)-1].Segment < last.Segment {
		return other
	}
	for _, r := range all {
		if r.Segment != last.Segment {
			continue
		}
		if r.End != 0 && r.End < last.To {
			return other
		}
		sum := NewSum()
		frames, err := wal.CopyFrames(context.Background(), a.o.LogFS, a.o.LogDir, a.o.StoreID, r.Segment, last.From, last.To, sum)
		switch {
		case err == nil && frames.To == last.To && sum.Sum64() == uint64(last.Sum):
			return nil
		case err == nil, errors.Is(err, kv.ErrCorrupt):
			return other
		}
		return err
	}
	return nil // deleted meanwhile: the next piece tells whether something is missing
}
