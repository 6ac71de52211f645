package repair

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Options of a repair. The zero value of every field is its default.
type Options struct {
	// Partitions is the number of partitions of a store without STORE; default: it is
	// derived from the directories and keys. A store that has STORE ignores it.
	Partitions int
	// MemoryBytes bounds the writes of the log that are sorted in memory at a time; default
	// 64 MiB.
	MemoryBytes int64
	// Backup is the directory of a whole store with an earlier version of the same store,
	// such as a restored backup. Of each range of keys in which anything may be missing, it
	// says what was there at its version. Default: none.
	Backup string
	// Progress is called with the bytes read and how many there are to read. Default: no call.
	Progress func(done, total int64)

	tableBytes int64 // from which on a new table is cut; default 32 MiB. Only tests set it.
}

// Run makes a new store in target of what can be read of the store in dir, which no process
// has open. The names are clean. It changes nothing in dir.
//
// Damage is in the report. Errors: vfs.ErrLocked if a process has the store open, or fills target;
// kv.ErrInvalidArgument if target is not empty, if the partition count cannot be derived, or if a
// restore or repair into dir has not ended, or if the backup is of another store or newer than this;
// kv.ErrUnsupportedVersion if a newer kvd wrote a file; those of the file system; that of ctx.
// After an error target is no store.
func Run(ctx context.Context, fsys vfs.FS, dir, targetDir string, o Options) (_ *Report, err error) {
	if o.MemoryBytes <= 0 {
		o.MemoryBytes = 64 << 20
	}
	if o.tableBytes <= 0 {
		o.tableBytes = 32 << 20
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	lock, err := descriptor.LockShared(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("repair %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := refuseMember(fsys, dir); err != nil {
		return nil, fmt.Errorf("repair %s: %w", dir, err)
	}
	r := &repair{
		ctx: ctx, o: o, dir: dir, src: &source{FS: fsys},
		report: Report{Version: ReportVersion, Source: dir, Target: targetDir, Files: []File{}, Losses: []Loss{}, Notes: []string{}},
		files:  map[string]*File{},
	}
	if err := r.list(); err != nil {
		return nil, fmt.Errorf("repair %s: %w", dir, err)
	}
	if r.out, err = beginTarget(fsys, targetDir, dir); err != nil {
		return nil, fmt.Errorf("repair %s: %w", dir, err)
	}
	defer func() {
		if r.backup != nil {
			err = errors.Join(err, r.backup.lock.Close())
		}
		err = errors.Join(err, r.out.lock.Close())
	}()
	if err := r.run(); err != nil {
		return nil, fmt.Errorf("repair %s: %w; %s holds an unfinished repair: remove it before the next attempt", dir, err, targetDir)
	}
	return &r.report, nil
}

// repair is the state of one Run.
type repair struct {
	ctx context.Context
	o   Options
	dir string
	src *source
	out *target

	report      Report
	files       map[string]*File // by path inside dir
	dirs        int              // the highest partition that has a directory, and one
	done, total int64

	descriptor descriptor.Descriptor
	clockFile  descriptor.Clock // what CLOCK says, unless clockErr
	clockErr   error
	log        logState
	backup     *backup // nil: there is none
	parts      []*part
	maxSeq     kv.SeqNum // of all tables in the new store
}

func (r *repair) run() error {
	for _, step := range []func() error{r.identity, r.openBackup, r.findVersions, r.surveyLog, r.checkBackupAge, r.partitions, r.writeLog, r.clock} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := r.out.end(&r.descriptor); err != nil {
		return err
	}
	r.finish()
	return nil
}

// list lists the files of the store.
func (r *repair) list() error {
	if err := descriptor.CheckFilled(r.src, r.dir); err != nil {
		return err
	}
	names, err := r.src.List(r.dir)
	if err != nil {
		return err
	}
	known := false
	for _, name := range names {
		id, isPartition := descriptor.ParsePartition(name)
		switch {
		case isPartition && id < descriptor.MaxPartitions:
			r.dirs = max(r.dirs, id+1)
		case name == descriptor.LogName:
		case name == descriptor.Name, name == descriptor.ClockName:
			known = known || name == descriptor.Name
			if err := r.add(name); err != nil {
				return err
			}
			continue
		default:
			continue
		}
		known = true
		inside, err := r.src.List(path.Join(r.dir, name))
		if err != nil {
			return err
		}
		for _, file := range inside {
			if err := r.add(path.Join(name, file)); err != nil {
				return err
			}
		}
	}
	if !known {
		return fmt.Errorf("%w: no store is here: neither STORE, nor wal, nor a partition", kv.ErrInvalidArgument)
	}
	return nil
}

func (r *repair) add(name string) error {
	info, err := r.src.Stat(path.Join(r.dir, name))
	if err != nil || info.IsDir() {
		return err
	}
	r.files[name] = &File{Path: name, Bytes: info.Size(), Action: Unused}
	if kind, _ := manifest.ParseName(path.Base(name)); kind == manifest.FileTable || kind == manifest.FileValues || path.Dir(name) == descriptor.LogName {
		r.total += info.Size()
	}
	return nil
}

// file returns the entry of a file, which may be missing.
func (r *repair) file(name string) *File {
	f := r.files[name]
	if f == nil {
		f = &File{Path: name, Action: Lost}
		r.files[name] = f
	}
	return f
}

// damaged adds the damage that an error describes to a file, or the file that it names.
func (r *repair) damaged(f *File, err error) {
	for _, err := range flatten(err) {
		d := Damage{Offset: -1, Reason: err.Error()}
		if damage, ok := errors.AsType[*kv.CorruptionError](err); ok {
			d = Damage{Offset: damage.Offset, Reason: damage.Reason}
		}
		f.Damage = append(f.Damage, d)
	}
}

// flatten returns the errors that were joined into err.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, err := range joined.Unwrap() {
			all = append(all, flatten(err)...)
		}
		return all
	}
	return []error{err}
}

// read counts bytes that were read, and returns the error of the context.
func (r *repair) read(bytes int64) error {
	r.done += bytes
	r.o.Progress(min(r.done, r.total), r.total)
	return r.ctx.Err()
}

func (r *repair) note(format string, args ...any) {
	r.report.Notes = append(r.report.Notes, fmt.Sprintf(format, args...))
}

func (r *repair) lose(l Loss) { r.report.Losses = append(r.report.Losses, l) }

// finish completes the report.
func (r *repair) finish() {
	r.report.StoreID = fmt.Sprintf("%016x", r.descriptor.StoreID)
	r.report.Partitions = r.descriptor.Partitions
	for name, f := range r.files {
		f.Damage = append(f.Damage, r.src.damage(path.Join(r.dir, name))...)
		r.report.Files = append(r.report.Files, *f)
	}
	slices.SortFunc(r.report.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	r.report.LastSeq = max(r.maxSeq, r.log.last)
	r.o.Progress(r.total, r.total)
}

// refuseMember refuses the store of a node of a cluster: what its log has and its tables lack
// would be taken for lost, although the other nodes have it; and a node whose log is shorter than
// what it has acknowledged could elect a leader that lacks acknowledged writes.
func refuseMember(fsys vfs.FS, dir string) error {
	if !descriptor.HasReplicatedLog(fsys, dir) {
		return nil
	}
	which, id := "a node", "NODE"
	if store, err := descriptor.Read(fsys, dir); err == nil {
		if node, err := descriptor.ReadNode(fsys, dir, store.StoreID); err == nil {
			which, id = fmt.Sprintf("node %d", node.Node), fmt.Sprint(node.Node)
		}
	}
	return fmt.Errorf("%w: %s is the store of %s of a cluster, which is replaced and not repaired: the other nodes have all of its data, and a node that has lost "+
		"a part of what it has acknowledged must not vote any more. Leave it stopped, and on this machine or another one: kvd cluster join --replace %s --data NEWDIR --peer HOST:PORT "+
		"--addr OTHERNODE, then kvd serve --cluster --data NEWDIR. If a majority of the nodes is damaged or lost: kvd cluster recover",
		kv.ErrInvalidArgument, dir, which, id)
}
