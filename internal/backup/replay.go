package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// Replay is the part of an archive that leads from a backup to a later version.
type Replay struct {
	Version kv.SeqNum // of the restored store, at most
	archive *Archive
	pieces  []*Piece
}

// Bytes returns the size of the frames to be copied.
func (r *Replay) Bytes() (sum int64) {
	for _, p := range r.pieces {
		sum += p.To - p.From
	}
	return sum
}

// lastSegment returns the number of the segment of the log in which the backup ends.
func (m *Manifest) lastSegment() (last uint64) {
	for i := range m.Files {
		dir, base := path.Split(m.Files[i].Name)
		if num, ok := wal.SegmentNumber(base); ok && dir == descriptor.LogName+"/" {
			last = max(last, num)
		}
	}
	return last
}

// End is where a restore ends: at a version, which may be 0, that of a store that nothing was written
// to; or, as the zero value, at the end of the archive.
type End struct {
	version kv.SeqNum
	given   bool
}

// UpTo returns the end at a version.
func UpTo(version kv.SeqNum) End { return End{version: version, given: true} }

// Version returns the version; ok is false if it is that of the end of the archive.
func (e End) Version() (version kv.SeqNum, ok bool) { return e.version, e.given }

// Plan finds the pieces of an archive that lead from a backup to an end.
//
// Errors: kv.ErrInvalidArgument if the version is older than the backup, or beyond the end of
// the archive, or a part of the log before it is not in the archive.
func (a *Archive) Plan(pieces []*Piece, m *Manifest, end End) (*Replay, error) {
	upTo, given := end.Version()
	refuse := func(format string, args ...any) (*Replay, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{kv.ErrInvalidArgument}, args...)...)
	}
	switch {
	case len(pieces) == 0:
		return refuse("%s holds no log yet", a.dir)
	case pieces[0].Store != m.Store:
		return nil, a.otherStore(pieces[0], m)
	case given && upTo < m.Version:
		return refuse("version %d is older than backup %s, which is of version %d; restore an earlier backup", upTo, m.ID, m.Version)
	case given && upTo == m.Version:
		return &Replay{Version: upTo, archive: a}, nil
	}
	first := m.lastSegment()
	i := 0
	for i < len(pieces) && (pieces[i].Segment < first || pieces[i].Segment == first && pieces[i].From != wal.FirstFrame) {
		i++
	}
	if i == len(pieces) {
		return refuse("the archive %s ends at version %d, before backup %s, which is of version %d: the server has not archived its log since",
			a.dir, pieces[i-1].Version, m.ID, m.Version)
	}
	if p := pieces[i]; p.Segment != first {
		return refuse("the log between backup %s, which is of version %d, and version %d is not in the archive %s%s",
			m.ID, m.Version, p.After, a.dir, because(p))
	}
	next := i + 1
	for next < len(pieces) && pieces[next].follows(pieces[next-1]) {
		next++
	}
	last := pieces[next-1]
	if next < len(pieces) && (!given || upTo > last.Version) {
		return refuse("the log between version %d and version %d is not in the archive %s%s; with --to-version %d the store is restored to before that gap",
			last.Version, pieces[next].After, a.dir, because(pieces[next]), last.Version)
	}
	if upTo > last.Version {
		return refuse("version %d is beyond the end of the archive %s, which is version %d at %s", upTo, a.dir, last.Version, last.Time)
	}
	if !given {
		upTo = last.Version
	}
	if upTo <= m.Version { // the backup is newer than the archive
		return &Replay{Version: m.Version, archive: a}, nil
	}
	r := &Replay{Version: upTo, archive: a}
	for _, p := range pieces[i:next] {
		r.pieces = append(r.pieces, p)
		if p.Version >= upTo {
			break
		}
	}
	return r, nil
}

func because(p *Piece) string {
	if p.Gap == "" {
		return ""
	}
	return ": " + p.Gap
}

// VersionAt returns the newest version that is known to have been seen by readers at a time:
// at most a second earlier, if the server was not busy otherwise.
//
// Errors: kv.ErrInvalidArgument if the archive does not reach to that time, or if it lies
// between the last time that a killed server noted in the archive and the next start with the
// archive, and something was written meanwhile.
func (a *Archive) VersionAt(pieces []*Piece, at time.Time) (found kv.SeqNum, err error) {
	var oldest, newest moment
	var last Mark // the one before, of the server's run with number epoch
	var epoch hex64
	var until moment // the archive has everything of that run up to then
	for _, p := range pieces {
		for _, m := range p.Marks {
			if oldest.IsZero() || m.At.Before(oldest.Time) {
				oldest = m.At
			}
			if !m.At.After(at) {
				found = max(found, m.Version)
			}
			if p.Epoch != epoch && !last.At.IsZero() && at.After(until.Time) && at.Before(m.At.Time) {
				if v := newestUpTo(pieces, m.Version); v > last.Version {
					return 0, fmt.Errorf("%w: which version readers saw at %s is not known: the server was killed, or ran without the archive, between version %d at %s and version %d, with which it was started again at %s; give --to-version",
						kv.ErrInvalidArgument, momentOf(at), last.Version, last.At, v, m.At)
				}
			}
			if p.Epoch != epoch {
				until = moment{}
			}
			last, epoch, until = m, p.Epoch, later(until, m.At)
		}
		if p.Epoch == epoch {
			until = later(until, p.Until)
		}
		newest = later(newest, later(until, p.Until))
	}
	switch {
	case oldest.IsZero():
		return 0, fmt.Errorf("%w: %s holds no times yet", kv.ErrInvalidArgument, a.dir)
	case at.Before(oldest.Time):
		return 0, fmt.Errorf("%w: %s is before the first time in the archive %s, which is %s", kv.ErrInvalidArgument, momentOf(at), a.dir, oldest)
	case at.After(newest.Time):
		return 0, fmt.Errorf("%w: %s is beyond the end of the archive %s, which is version %d at %s; without --to-time the store is restored to that",
			kv.ErrInvalidArgument, momentOf(at), a.dir, pieces[len(pieces)-1].Version, newest)
	}
	return found, nil
}

// newestUpTo returns the newest version that was written, up to one with which the server was
// started: with that, it began a segment and so a piece.
func newestUpTo(pieces []*Piece, upTo kv.SeqNum) (newest kv.SeqNum) {
	for _, p := range pieces {
		for _, v := range []kv.SeqNum{p.After, p.Version} {
			if v <= upTo {
				newest = max(newest, v)
			}
		}
	}
	return newest
}

func later(a, b moment) moment {
	if b.After(a.Time) {
		return b
	}
	return a
}

// apply extends the log of the store that is being restored to dir, and verifies it.
func (r *Replay) apply(ctx context.Context, t *transfer, fsys vfs.FS, dir string, m *Manifest) (err error) {
	if len(r.pieces) == 0 {
		return nil
	}
	store := uint64(m.Store)
	logDir := descriptor.LogDir(dir)
	x, err := wal.NewExtender(fsys, logDir, store)
	if err != nil {
		return err
	}
	for _, p := range r.pieces {
		if err = r.extend(ctx, t, x, p); err != nil {
			break
		}
	}
	if err = joinKeep(err, x.Close()); err != nil {
		return fmt.Errorf("replay the archive %s: %w", r.archive.dir, err)
	}
	if err := wal.Cut(fsys, logDir, store, r.Version, x.Low(), record.Cut); err != nil {
		return err
	}
	if err := r.setClock(fsys, dir, store); err != nil {
		return err
	}
	_, err = wal.Replay(wal.Options{FS: fsys, Dir: logDir, StoreID: store}, func(rec wal.Record) error {
		if rec.Last() > r.Version {
			return fmt.Errorf("number %d is beyond version %d", rec.Last(), r.Version)
		}
		if rec.Base > m.Version { // about as many bytes as the pieces have
			t.did(int64(len(rec.Payload)))
		}
		return context.Cause(ctx)
	})
	return err
}

// joinKeep returns the first error, or the second one if there is no first.
func joinKeep(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func (r *Replay) extend(ctx context.Context, t *transfer, x *wal.Extender, p *Piece) error {
	if p.Segment != x.Segment() {
		if err := x.Next(p.Segment); err != nil {
			return err
		}
	}
	name, size, sum := r.archive.framesPath(p), p.To-p.From, uint64(p.Sum)
	err := t.readFile(ctx, r.archive.fsys, name, x, size, sum)
	if errors.Is(err, kv.ErrInvalidArgument) { // the frames differ from the backup: perhaps they are damaged
		return joinKeep(newTransfer(Options{}, 0).verifyFile(ctx, r.archive.fsys, name, size, sum), err)
	}
	return err
}

// setClock makes the store's clock of expiry begin at a time that it had not passed at the
// version: so no key comes back that had expired.
func (r *Replay) setClock(fsys vfs.FS, dir string, store uint64) error {
	bound := r.pieces[len(r.pieces)-1].Clock
	if bound == 0 {
		return nil
	}
	saved, err := descriptor.ReadClock(fsys, dir, store)
	switch {
	case err == nil:
		bound = max(bound, saved.Bound)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	c := descriptor.Clock{StoreID: store, Bound: bound}
	return vfs.WriteAtomic(fsys, descriptor.ClockPath(dir), c.Encode())
}
