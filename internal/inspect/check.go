package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// LogCheck reads the log of a cluster's node in a directory, and returns what it holds, for
// people. It changes nothing. It is not in this package, which does not know the consensus.
//
// Errors: as those of a wal.Verify that cannot read the log, or finds it damaged; joined if
// several places are damaged.
type LogCheck func(fsys vfs.FS, dir string, node *descriptor.Node) (note string, err error)

// Check reads every byte of the store in dir and reports on each file. It continues
// after damage. It calls progress, if not nil, after each piece with the bytes done and
// the total. The log of a node of a cluster is left to replicated; without it the report
// says that it was not checked.
//
// The error says why there is no report: vfs.ErrLocked if a process has the store open,
// fs.ErrNotExist if there is none, or the error of ctx. Damage to the store is in the
// report instead. Cost: reads everything once; memory for the filter and index of one
// table, and for some MiB of values or the largest two.
func Check(ctx context.Context, fsys vfs.FS, dir string, replicated LogCheck, progress func(done, total int64)) (report *Report, err error) {
	dir = path.Clean(dir)
	lock, err := descriptor.LockShared(fsys, dir)
	if err != nil {
		err = fmt.Errorf("check %s: %w", dir, err)
		if errors.Is(err, vfs.ErrLocked) {
			err = fmt.Errorf("%w; stop the server first", err)
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	c := &checker{ctx: ctx, fsys: fsys, dir: dir, files: make(map[string]*File), replicated: replicated, progress: progress}
	if err := c.listStore(); err != nil {
		return nil, err
	}
	if err := c.store(); err != nil {
		return nil, err
	}
	if err := c.clock(); err != nil {
		return nil, err
	}
	if err := c.nodeFile(); err != nil {
		return nil, err
	}
	for id := range c.report.Partitions {
		if err := c.partition(id); err != nil {
			return nil, err
		}
	}
	if err := c.log(); err != nil {
		return nil, err
	}
	return c.finish(), nil
}

// checker is the state of one Check.
type checker struct {
	ctx      context.Context
	fsys     vfs.FS
	dir      string
	progress func(done, total int64)

	replicated LogCheck
	node       *descriptor.Node // nil: there is none, or it cannot be read

	report      Report
	storeID     uint64
	haveStore   bool
	files       map[string]*File // by path inside dir
	done, total int64
	flushedUpTo kv.SeqNum // the highest of any partition
}

// listStore lists the files in the directory: those of the store by the kind that their
// name gives, all others as KindOther.
func (c *checker) listStore() error {
	names, err := c.fsys.List(c.dir)
	if err != nil {
		return fmt.Errorf("check %s: %w", c.dir, err)
	}
	ours := false
	for _, name := range names {
		id, isPartition := descriptor.ParsePartition(name)
		switch {
		case isPartition:
			ours = true
			c.report.Partitions = max(c.report.Partitions, id+1)
			err = c.list(name, KindOther)
		case name == descriptor.LogName:
			ours = true
			err = c.list(name, KindOther)
		case name == descriptor.Name:
			ours = true
			err = c.add(name, KindStore)
		case name == descriptor.ClockName:
			err = c.add(name, KindClock)
		case name == descriptor.NodeName:
			err = c.add(name, KindNode)
		case name == descriptor.DiffersName:
			if err = c.add(name, KindNode); err == nil {
				c.files[name].Note = "the state of the node differed from that of the majority of its cluster: it must not serve"
			}
		case name == descriptor.LockName:
			err = c.add(name, KindLock)
		case name == descriptor.BallastName:
			err = c.add(name, KindBallast)
		default:
			err = c.add(name, KindOther)
		}
		if err != nil {
			return fmt.Errorf("check %s: %w", c.dir, err)
		}
	}
	if !ours {
		return fmt.Errorf("check %s: no store is here: %w", c.dir, fs.ErrNotExist)
	}
	return nil
}

// list adds the files of a directory, but not of its subdirectories.
func (c *checker) list(dir string, kind Kind) error {
	names, err := c.fsys.List(path.Join(c.dir, dir))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.add(path.Join(dir, name), kind); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) add(name string, kind Kind) error {
	info, err := c.fsys.Stat(path.Join(c.dir, name))
	if err != nil || info.IsDir() {
		return err
	}
	c.files[name] = &File{Path: name, Kind: kind, Bytes: info.Size()}
	c.total += info.Size()
	return nil
}

// file returns the entry of a path inside the directory; a new entry if the file is
// missing.
func (c *checker) file(name string, kind Kind) *File {
	f := c.files[name]
	if f == nil {
		f = &File{Path: name}
		c.files[name] = f
	}
	f.Kind = kind
	return f
}

// notChecked notes that a file was not read, and why.
func (f *File) notChecked(why string) { f.unchecked, f.Note = true, why }

// found records an error in the entry of the file that it names, or else in the entry
// of the file being read. It returns only the error of ctx, which says nothing about
// the file.
func (c *checker) found(f *File, err error) error {
	if ctxErr := c.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if damage, ok := errors.AsType[*kv.CorruptionError](err); ok {
		if name := c.inside(damage.File); name != f.Path && name != descriptor.LogName {
			f = c.file(name, f.Kind)
		}
	}
	if err != nil {
		f.Err = errors.Join(f.Err, err)
	}
	return nil
}

// inside returns name relative to the store's directory.
func (c *checker) inside(name string) string {
	if c.dir == "." {
		return name
	}
	return strings.TrimPrefix(strings.TrimPrefix(name, c.dir), "/")
}

// advance adds to the bytes done and reports progress.
func (c *checker) advance(bytes int64) {
	c.done += bytes
	if c.progress != nil {
		c.progress(min(c.done, c.total), c.total)
	}
}

// store checks STORE. Without it, the partitions are those that have a directory.
func (c *checker) store() error {
	f := c.file(descriptor.Name, KindStore)
	d, err := descriptor.Read(c.fsys, c.dir)
	c.advance(f.Bytes)
	if errors.Is(err, fs.ErrNotExist) {
		err = kv.Corruptf(descriptor.Path(c.dir), -1, "file is missing: it was lost, or the creation of the store was cut short")
	}
	if err != nil {
		return c.found(f, err)
	}
	if has := c.report.Partitions; has > d.Partitions {
		return c.found(f, descriptor.ErrTooFew(c.dir, d.Partitions, has-1))
	}
	c.storeID, c.haveStore = d.StoreID, true
	c.report.StoreID = fmt.Sprintf("%016x", d.StoreID)
	c.report.Partitions = d.Partitions
	return nil
}

// clock checks CLOCK. A store without CLOCK never had a key that expires.
func (c *checker) clock() error {
	return c.ofStore(descriptor.ClockName, func(*File) error {
		_, err := descriptor.ReadClock(c.fsys, c.dir, c.storeID)
		return err
	})
}

// ofStore checks a file that names the id of the store, if there is one.
func (c *checker) ofStore(name string, read func(*File) error) error {
	f := c.files[name]
	if f == nil {
		return nil
	}
	defer c.advance(f.Bytes)
	if !c.haveStore {
		f.notChecked("it names the id in STORE")
		return nil
	}
	return c.found(f, read(f))
}

// nodeFile checks NODE, of a node of a cluster.
func (c *checker) nodeFile() error {
	return c.ofStore(descriptor.NodeName, func(f *File) error {
		node, err := descriptor.ReadNode(c.fsys, c.dir, c.storeID)
		if err == nil {
			c.node = &node
			f.Note = fmt.Sprintf("node %d of cluster %016x", node.Node, node.Cluster)
			if node.Incarnation != (kv.Incarnation{}) {
				f.Note += ", incarnation " + node.Incarnation.String()
			}
		}
		return err
	})
}

// finish sorts the files and sets Status from Err.
func (c *checker) finish() *Report {
	r := &c.report
	r.Dir = c.dir
	for _, f := range c.files {
		switch {
		case f.Err != nil:
			f.Status = strings.ReplaceAll(f.Err.Error(), "\n", "; ")
		case f.unchecked:
			f.Status = "not checked"
			r.Unchecked++
		default:
			f.Status = "ok"
		}
		r.Files = append(r.Files, *f)
		r.Bytes += f.Bytes
	}
	slices.SortFunc(r.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	c.advance(c.total - c.done)
	return r
}
