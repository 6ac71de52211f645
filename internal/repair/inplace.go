package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/verify"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// InPlaceOptions of a repair in place. The zero value of every field but Scratch is its default.
type InPlaceOptions struct {
	// Scratch is a directory for tables that are needed meanwhile, outside the store. It is new
	// or empty; Close removes it. It is locked, so that no two repairs use one. Required.
	Scratch string
	// PlanOnly: Apply will not be called, so the store is locked as by a reader, and nothing in it
	// changes.
	PlanOnly bool
	// Backup, MemoryBytes and Progress are those of Options.
	Backup      string
	MemoryBytes int64
	Progress    func(done, total int64)
}

// InPlace repairs a store where it is: of each damaged table, and of each table that points into a
// damaged value file, it makes a new one, and one edit of the manifest puts the new tables of a
// partition in the places of the old ones. All other files stay as they are.
//
// I1. Everything that verifies is kept. In the place of what does not, there is what the backup
// has or, without one, nothing: a key whose newest version may be lost is absent, unless a newer
// table or the log has a newer one. No older version of it shows through.
//
// I2. A key is taken for lost if it lies in a part of a table that does not verify, and its filter
// cannot exclude it, or if its value does not verify. See rewrite.loses.
//
// I3. With a backup, such a key has what the backup has, or an older table if that is newer than
// the backup; what is missing then are later versions. See build.restore.
//
// I4. At every moment each partition is as it was or repaired. Before that, every file that the
// edit removes is copied to another directory.
//
// Used by one goroutine.
type InPlace struct {
	*repair
	lock   io.Closer
	held   io.Closer      // of the scratch directory
	places []*damagedPart // partitions with damage
}

// PlanInPlace verifies the store in dir, which no process has open, and finds out what a repair
// in place would do: see Report. It changes nothing in dir but LOCK. The caller closes the
// result.
//
// Errors: vfs.ErrLocked if a process has the store open, or another repair uses Scratch; kv.ErrCorrupt if more than tables and
// value files is damaged; kv.ErrInvalidArgument if the backup is not one of this store, or is newer;
// kv.ErrUnsupportedVersion; those of the file system; that of ctx.
func PlanInPlace(ctx context.Context, fsys vfs.FS, dir string, o InPlaceOptions) (_ *InPlace, err error) {
	if o.MemoryBytes <= 0 {
		o.MemoryBytes = 64 << 20
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	if inside(o.Scratch, dir) {
		return nil, errInside(o.Scratch)
	}
	lockStore := descriptor.Lock
	if o.PlanOnly {
		lockStore = descriptor.LockShared
	}
	lock, err := lockStore(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("repair %s: %w", dir, err)
	}
	if err := refuseMember(fsys, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("repair %s: %w", dir, err), lock.Close())
	}
	held, err := holdScratch(fsys, o.Scratch)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("repair %s in place: %w", dir, err), lock.Close())
	}
	s := &InPlace{lock: lock, held: held, repair: &repair{
		ctx: ctx, dir: dir, src: &source{FS: fsys}, out: &target{fsys: fsys, dir: o.Scratch},
		o: Options{Backup: o.Backup, MemoryBytes: o.MemoryBytes, Progress: o.Progress},
		report: Report{
			Version: ReportVersion, Source: dir, Target: dir, Files: []File{}, Losses: []Loss{}, Notes: []string{}, InPlace: &InPlaceReport{},
		},
		files: map[string]*File{},
	}}
	if err := s.plan(); err != nil {
		return nil, errors.Join(fmt.Errorf("repair %s in place: %w", dir, err), s.Close())
	}
	return s, nil
}

// holdScratch makes and locks a scratch directory.
func holdScratch(fsys vfs.FS, dir string) (io.Closer, error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	return descriptor.LockFilling(fsys, dir)
}

// errOnlyTables is the error for a store in which more than tables and value files is damaged.
func errOnlyTables(err error) error {
	return fmt.Errorf("%w; in place, only tables and value files can be repaired; kvd repair SRC DST makes a new store of everything that can be read", err)
}

func (s *InPlace) plan() error {
	if err := s.list(); err != nil {
		return err
	}
	for _, f := range s.files {
		f.Action = Kept
	}
	if err := s.checkRest(); err != nil {
		return err
	}
	for id := range s.descriptor.Partitions {
		p, err := s.survey(id)
		if err != nil {
			return fmt.Errorf("partition %d: %w", id, err)
		}
		s.report.Entries += p.version.Entries()
		s.parts = append(s.parts, p.part)
		if len(p.rewrites) > 0 {
			s.places = append(s.places, p)
		}
	}
	if most := s.mostFlushed(); most >= s.log.next {
		return errOnlyTables(kv.Corruptf(descriptor.LogDir(s.dir), -1, "the log ends before number %d, but tables hold everything up to %d", s.log.next, most))
	}
	if len(s.places) > 0 {
		if err := errors.Join(s.openBackup(), s.checkBackupAge()); err != nil {
			return err
		}
	}
	for _, p := range s.places {
		if err := p.plan(); err != nil {
			return fmt.Errorf("partition %d: %w", p.id, err)
		}
	}
	last := s.log.last
	s.finish()
	s.report.LastSeq = max(s.report.LastSeq, last)
	return nil
}

// checkRest returns an error unless STORE, CLOCK and the log are whole.
func (s *InPlace) checkRest() error {
	d, err := descriptor.Read(s.src, s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errOnlyTables(kv.Corruptf(descriptor.Path(s.dir), -1, "file is missing"))
	case errors.Is(err, kv.ErrCorrupt):
		return errOnlyTables(err)
	case err != nil:
		return err
	case s.dirs > d.Partitions:
		return errOnlyTables(descriptor.ErrTooFew(s.dir, d.Partitions, s.dirs-1))
	}
	s.descriptor = d
	if _, err := descriptor.ReadClock(s.src, s.dir, d.StoreID); errors.Is(err, kv.ErrCorrupt) {
		return errOnlyTables(err)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	report, err := wal.Verify(s.src, descriptor.LogDir(s.dir), d.StoreID, func(rec wal.Record) error { return s.read(int64(len(rec.Payload))) })
	if err != nil {
		return err
	}
	if report.Problem != nil {
		return errOnlyTables(report.Problem)
	}
	s.log = logState{whole: true, last: report.LastSeq, next: report.NextSeq}
	s.report.Records = report.Records
	return nil
}

// survey verifies the files of a partition.
func (s *InPlace) survey(id int) (*damagedPart, error) {
	in := descriptor.PartitionDir("", id)
	p := &damagedPart{
		part:  &part{repair: s.repair, id: id, in: in, dir: path.Join(s.out.dir, in), values: map[kv.FileNum]*values{}},
		store: descriptor.PartitionDir(s.dir, id), rewrites: map[kv.FileNum]*rewrite{},
	}
	v, err := manifest.LoadVersion(s.src, p.store, uint32(id))
	if err == nil {
		err = p.outdated(v)
	}
	if errors.Is(err, kv.ErrCorrupt) {
		err = errOnlyTables(err)
	}
	if err != nil {
		return nil, err
	}
	p.version, p.next = v, v.NextFile
	for i := range v.Values {
		if err := p.surveyValues(v.Values[i]); err != nil {
			return nil, err
		}
	}
	for i, run := range p.runs() {
		for j := range run {
			if err := p.surveyTable(i, &run[j]); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// runs returns the deltas, newest first, and the base.
func (p *damagedPart) runs() []manifest.Run {
	return append(slices.Clone(p.version.Deltas), p.version.Base)
}

// surveyValues verifies a value file, and opens what is left of a damaged one.
func (p *damagedPart) surveyValues(m kv.ValueFileMeta) error {
	name := manifest.ValuesName(m.Num)
	err := verify.Values(p.ctx, p.src, p.source(name), uint32(p.id), &m, p.verified)
	if !errors.Is(err, kv.ErrCorrupt) {
		return errors.Join(err, p.ctx.Err())
	}
	v := &values{file: p.entry(name), meta: m}
	p.values[m.Num] = v
	v.file.Action = Salvaged
	p.damaged(v.file, err)
	return p.openRest(v)
}

// verified counts bytes that were read. The verification itself looks at the context.
func (p *damagedPart) verified(bytes int64) { _ = p.read(bytes) }

// surveyTable verifies a table of a run, and notes it if it has to be replaced.
func (p *damagedPart) surveyTable(run int, m *kv.TableMeta) error {
	name := manifest.TableName(m.Num)
	err := verify.Table(p.ctx, p.src, p.source(name), uint32(p.id), m, p.verified, nil)
	if err != nil && !errors.Is(err, kv.ErrCorrupt) {
		return err
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	r := &rewrite{table: &table{file: p.entry(name), meta: *m, want: m}, run: run}
	switch {
	case err != nil:
		p.rewrites[m.Num] = r
		return p.examine(r, err)
	case p.needsLost(m):
		r.table.file.Action, r.usable, r.whole = Rewritten, true, true
		p.rewrites[m.Num] = r
		return p.examineWhole(r)
	}
	return nil
}

// Report says what the repair would do or, after Apply, what it has done.
func (s *InPlace) Report() *Report { return &s.report }

// Close unlocks the store and removes the scratch directory. Idempotent.
func (s *InPlace) Close() error {
	if s.lock == nil {
		return nil
	}
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.closeValues())
	}
	if s.backup != nil {
		errs = append(errs, s.backup.lock.Close())
	}
	errs = append(errs, removeTree(s.out.fsys, s.out.dir), s.held.Close(), s.lock.Close())
	s.lock = nil
	return errors.Join(errs...)
}

// removeTree removes a directory and all that is in it, if it is there.
func removeTree(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, name := range names {
		name = path.Join(dir, name)
		if info, err := fsys.Stat(name); err == nil && info.IsDir() {
			errs = append(errs, removeTree(fsys, name))
			continue
		}
		errs = append(errs, fsys.Remove(name))
	}
	return errors.Join(append(errs, fsys.Remove(dir))...)
}
