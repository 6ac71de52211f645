package backup

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

const (
	archiveMarkerName = "KVD-ARCHIVE"
	archiveMarker     = "kvd-archive 1\n"
	archiveKind       = "an archive of a commit log"
)

// Archive is a directory to which the log of one store is copied, as the package comment
// describes it.
type Archive struct {
	fsys   vfs.FS
	dir    string
	lock   io.Closer   // nil: opened for reading
	marker os.FileInfo // of the file that marks the directory, if it is locked
}

// OpenArchive opens an archive for reading, and for Prune. Nothing is held, so there is no
// Close. A server may write to it meanwhile.
//
// Errors: kv.ErrInvalidArgument if it is none.
func OpenArchive(fsys vfs.FS, dir string) (*Archive, error) {
	if err := checkMarker(fsys, dir, archiveMarkerName, archiveMarker, archiveKind); err != nil {
		return nil, err
	}
	return &Archive{fsys: fsys, dir: dir}, nil
}

// lockArchive opens an archive for writing. It is made if the directory does not exist or is
// empty. The caller closes it.
//
// Errors: vfs.ErrLocked if another server writes to it; those of OpenArchive.
func lockArchive(fsys vfs.FS, dir string) (*Archive, error) {
	lock, err := lockMarked(fsys, dir, archiveMarkerName, archiveMarker, archiveKind)
	if err != nil {
		return nil, err
	}
	marker, err := fsys.Stat(path.Join(dir, archiveMarkerName))
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Archive{fsys: fsys, dir: dir, lock: lock, marker: marker}, nil
}

// errGone: the directory is not the archive that was locked.
var errGone = errors.New("the archive that was there is gone")

// there makes sure that the directory is still the archive that was locked: its disk may have
// been unmounted, or the directory replaced.
//
// Errors: errGone.
func (a *Archive) there() error {
	marker, err := a.fsys.Stat(path.Join(a.dir, archiveMarkerName))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !vfs.SameFile(marker, a.marker) {
		return fmt.Errorf("%w from %s", errGone, a.dir)
	}
	return err
}

func (a *Archive) close() error { return a.lock.Close() }

// Pieces returns the descriptions of all pieces, in the order of the log.
//
// Errors: kv.ErrInvalidArgument if they are of several stores; a *kv.CorruptionError.
func (a *Archive) Pieces() ([]*Piece, error) {
	names, err := a.fsys.List(a.dir)
	if err != nil {
		return nil, err
	}
	var all []*Piece
	for _, name := range names {
		segment, from, ok := parsePiece(name, pieceSuffix)
		if !ok {
			continue
		}
		file := path.Join(a.dir, name)
		b, err := readFile(a.fsys, file, maxPiece)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Prune removed it meanwhile
		}
		if err != nil {
			return nil, err
		}
		p, err := DecodePiece(file, b)
		switch {
		case err != nil:
			return nil, err
		case p.Segment != segment || p.From != from:
			return nil, kv.Corruptf(file, 0, "it describes segment %d from offset %d on", p.Segment, p.From)
		case len(all) > 0 && p.Store != all[0].Store:
			return nil, fmt.Errorf("%w: %s holds the logs of the stores %016x and %016x", kv.ErrInvalidArgument, a.dir, uint64(all[0].Store), uint64(p.Store))
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y *Piece) int {
		return cmp.Or(cmp.Compare(x.Segment, y.Segment), cmp.Compare(x.From, y.From))
	})
	return all, nil
}

func (a *Archive) piecePath(p *Piece) string  { return path.Join(a.dir, p.name()+pieceSuffix) }
func (a *Archive) framesPath(p *Piece) string { return path.Join(a.dir, p.name()+framesSuffix) }

// write adds a piece, whose frames copyTo writes; it fills in what p says of them. A piece
// exists if its description does, which is written last.
func (a *Archive) write(ctx context.Context, p *Piece, copyTo func(io.Writer) (wal.Frames, error)) (err error) {
	name := a.framesPath(p)
	// An earlier attempt may have written both, and failed to make that durable.
	switch err := a.fsys.Remove(a.piecePath(p)); {
	case err == nil:
		err = a.fsys.SyncDir(a.dir)
		if err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := vfs.RemoveIfThere(a.fsys, name); err != nil {
		return err
	}
	f, err := a.fsys.Create(name)
	if err != nil {
		return err
	}
	sum := NewSum()
	buf := bufio.NewWriterSize(io.MultiWriter(sum, &fileWriter{f: f}), copyBytes)
	frames, err := copyTo(buf)
	if err == nil {
		err = buf.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, a.fsys.Remove(name))
	}
	p.Previous, p.To, p.Ends = frames.Previous, frames.To, frames.Ends
	p.After, p.Version, p.Sum = frames.After, frames.Last, hex64(sum.Sum64())
	if err := newTransfer(Options{}, 0).verifyFile(ctx, a.fsys, name, p.To-p.From, uint64(p.Sum)); err != nil {
		return errors.Join(err, a.fsys.Remove(name))
	}
	return a.fsys.SyncDir(a.dir)
}

// publish writes the description of a piece whose frames are written.
func (a *Archive) publish(p *Piece) error {
	b, err := p.Encode()
	if err != nil {
		return err
	}
	return vfs.WriteAtomic(a.fsys, a.piecePath(p), b)
}

// Verify reads the frames of all pieces and compares their checksums. It continues after
// damage.
//
// Errors: all *kv.CorruptionError that were found, joined; else what a read returned.
func (a *Archive) Verify(ctx context.Context, pieces []*Piece, o Options) error {
	total := int64(0)
	for _, p := range pieces {
		total += p.To - p.From
	}
	t := newTransfer(o, total)
	var damage []error
	for _, p := range pieces {
		err := t.verifyFile(ctx, a.fsys, a.framesPath(p), p.To-p.From, uint64(p.Sum))
		if err != nil && !errors.Is(err, kv.ErrCorrupt) {
			return err
		}
		if err != nil {
			damage = append(damage, err)
		}
	}
	return errors.Join(damage...)
}

// Run is successive pieces without a gap.
type Run struct {
	After, Version kv.SeqNum // with a backup of version After or later, any up to Version can be restored
	Since, Until   time.Time // of the pieces
	Pieces         int
	Bytes          int64
	Gap            string // why the log before is not in the archive, if that is known
}

// Runs returns the runs of an archive, oldest first.
func Runs(pieces []*Piece) (runs []Run) {
	for i, p := range pieces {
		if i == 0 || !p.follows(pieces[i-1]) {
			runs = append(runs, Run{After: p.After, Since: p.Time.Time, Gap: p.Gap})
		}
		r := &runs[len(runs)-1]
		r.Version, r.Until = p.Version, p.Time.Time
		r.Pieces++
		r.Bytes += p.To - p.From
	}
	return runs
}

// Prune removes the pieces that no restore of one of the backups needs. The newest piece
// stays: the server compares its log with it. A server may write to the archive meanwhile.
func (a *Archive) Prune(backups []*Manifest) (p Pruned, err error) {
	pieces, err := a.Pieces()
	if err != nil {
		return p, err
	}
	keep := uint64(math.MaxUint64)
	for _, m := range backups {
		if len(pieces) > 0 && pieces[0].Store != m.Store {
			return p, a.otherStore(pieces[0], m)
		}
		keep = min(keep, m.lastSegment())
	}
	last := len(pieces) - 1
	for i, piece := range pieces {
		if piece.Segment >= keep || i == last {
			break
		}
		// The description is gone for good before the frames go.
		if err := vfs.RemoveIfThere(a.fsys, a.piecePath(piece)); err != nil {
			return p, err
		}
		p.Files++
		p.Bytes += piece.To - piece.From
	}
	if p.Files > 0 {
		if err := a.fsys.SyncDir(a.dir); err != nil {
			return p, err
		}
	}
	// What interrupted attempts left goes too.
	described := map[string]bool{}
	for _, piece := range pieces[p.Files:] {
		described[piece.name()] = true
	}
	names, err := a.fsys.List(a.dir)
	if err != nil {
		return p, err
	}
	for _, name := range names {
		segment, from, ok := parsePiece(name, framesSuffix)
		if !ok || segment >= keep || last >= 0 && segment >= pieces[last].Segment || described[(&Piece{Segment: segment, From: from}).name()] {
			continue
		}
		if err := vfs.RemoveIfThere(a.fsys, path.Join(a.dir, name)); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (a *Archive) otherStore(p *Piece, m *Manifest) error {
	return fmt.Errorf("%w: %s holds the log of the store %016x, and the backup is of the store %016x",
		kv.ErrInvalidArgument, a.dir, uint64(p.Store), uint64(m.Store))
}
