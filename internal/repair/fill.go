package repair

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sort"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/wal"
)

// backup is a whole store with an earlier version of the damaged one. It is complete: a key
// that it does not have was absent at its version.
//
// For the keys of a loss, the new store has the entries of the backup, and of the damaged
// store only those with higher numbers. (An older entry of the damaged store may have been
// deleted since by a write that is lost, and whose tombstone the backup no longer has.) What
// may be missing then are versions above that of the backup.
type backup struct {
	dir     string
	version kv.SeqNum
	lock    io.Closer
}

// openBackup makes sure that the backup is whole and of this store. Its files are verified
// again when they are read.
func (r *repair) openBackup() error {
	dir := r.o.Backup
	if dir == "" {
		return nil
	}
	d, err := descriptor.Read(r.src, dir)
	if err != nil {
		return fmt.Errorf("open the backup: %w", err)
	}
	if d.StoreID != r.descriptor.StoreID || d.Partitions != r.descriptor.Partitions {
		return fmt.Errorf("%w: the backup is of store %016x with %d partitions, not of store %016x with %d",
			kv.ErrInvalidArgument, d.StoreID, d.Partitions, r.descriptor.StoreID, r.descriptor.Partitions)
	}
	lock, err := descriptor.LockShared(r.src, dir)
	if err != nil {
		return fmt.Errorf("open the backup: %w", err)
	}
	b := &backup{dir: dir, lock: lock}
	r.backup = b
	report, err := wal.Verify(r.src, descriptor.LogDir(dir), d.StoreID, func(wal.Record) error { return r.ctx.Err() })
	if err = errors.Join(err, report.Problem); err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	b.version = report.LastSeq
	for id := range d.Partitions {
		v, err := manifest.Load(r.src, descriptor.PartitionDir(dir, id), uint32(id))
		if err != nil {
			return fmt.Errorf("read the backup: %w", err)
		}
		b.version = max(b.version, v.MaxSeq)
	}
	r.report.BackupVersion = b.version
	r.note("Ranges of keys in which anything may be missing were filled with what the backup has, as of version %d. If the backup is not one of this very store, but of a copy that was written to, they hold what was never in this one; if the backup comes from a store that a repair had made with losses, these are missing here too.", b.version)
	return nil
}

// checkBackupAge refuses a backup that has writes which the store never had, if the log is whole:
// the store is an older copy then. What the backup has of a lost key may be such a write.
func (r *repair) checkBackupAge() error {
	if r.backup == nil || !r.log.whole || r.backup.version < r.log.next {
		return nil
	}
	return fmt.Errorf("%w: the backup is of version %d, and the store is older: it ends before version %d. Restore the backup, or give an older one",
		kv.ErrInvalidArgument, r.backup.version, r.log.next)
}

// fillable returns the losses of the partition for which the backup can have anything. It has
// the writes that are lost, if it is newer than them. If it is older, it has what they hid and
// a merge has dropped since; but what a record of the log hid is still in the tables.
func (p *part) fillable() (lost []Loss) {
	if p.backup == nil {
		return nil
	}
	for _, l := range p.report.Losses {
		if p.canFill(&l) {
			lost = append(lost, l)
		}
	}
	return lost
}

func (p *part) canFill(l *Loss) bool {
	return l.Partition == p.id && (l.FirstVersion <= p.backup.version || !l.inLog())
}

func (l *Loss) inLog() bool {
	return l.File == descriptor.LogName || path.Dir(l.File) == descriptor.LogName
}

// keySet is intervals of keys, both ends included, in order and disjoint. A nil end is open.
type keySet [][2][]byte

// keysOf returns the keys that losses concern.
func keysOf(lost []Loss) keySet {
	var all keySet
	for _, l := range lost {
		all = append(all, [2][]byte{l.FirstKey, l.LastKey})
	}
	return all.union()
}

// union returns the keys of intervals that may overlap, in any order. It changes their order.
func (s keySet) union() (keys keySet) {
	slices.SortFunc(s, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) })
	for _, next := range s {
		if n := len(keys) - 1; n >= 0 && (keys[n][1] == nil || bytes.Compare(next[0], keys[n][1]) <= 0) {
			if keys[n][1] != nil && (next[1] == nil || bytes.Compare(next[1], keys[n][1]) > 0) {
				keys[n][1] = next[1]
			}
			continue
		}
		keys = append(keys, next)
	}
	return keys
}

func (s keySet) has(key []byte) bool {
	i := sort.Search(len(s), func(i int) bool { return bytes.Compare(s[i][0], key) > 0 }) - 1
	return i >= 0 && (s[i][1] == nil || bytes.Compare(key, s[i][1]) <= 0)
}

// fill makes tables of what the backup has of some keys, and of its range tombstones.
func (p *part) fill(keys keySet) (tables []*table, err error) {
	p.report.Filled -= p.fills
	p.fills = 0
	if len(keys) == 0 {
		return nil, nil
	}
	dir := descriptor.PartitionDir(p.backup.dir, p.id)
	v, err := manifest.Load(p.src, dir, uint32(p.id))
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	values := valuefile.NewSet(func(num kv.FileNum) (*valuefile.Reader, error) {
		f, err := p.src.Open(path.Join(dir, manifest.ValuesName(num)))
		if err != nil {
			return nil, err
		}
		r, err := valuefile.Open(f, p.fileID(num))
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return r, nil
	})
	defer func() { err = errors.Join(err, values.Close()) }()
	for m := range v.Tables() {
		t, err := p.fillTable(path.Join(dir, manifest.TableName(m.Num)), m.Num, keys, values)
		if err != nil {
			return nil, fmt.Errorf("read the backup: %w", err)
		}
		if t != nil {
			tables = append(tables, t)
		}
	}
	records := func(fn func(wal.Record) error) error {
		_, err := wal.Verify(p.src, descriptor.LogDir(p.backup.dir), p.descriptor.StoreID, fn)
		return err
	}
	logged, err := p.tablesOf(records, func(e *kv.Entry) bool { return e.Seq > v.FlushedSeq && p.fillsWith(e, keys) })
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	p.report.Filled += p.fills
	return append(tables, logged...), nil
}

// fillsWith reports whether an entry of the backup belongs into the new store, and counts it.
func (p *part) fillsWith(e *kv.Entry, keys keySet) bool {
	if e.Kind == kv.KindRangeDelete {
		return true
	}
	if !keys.has(e.Key) {
		return false
	}
	p.fills++
	return true
}

// fillTable makes a table of what a table of the backup has of some keys.
func (p *part) fillTable(name string, num kv.FileNum, keys keySet, values *valuefile.Set) (t *table, err error) {
	f, err := p.src.Open(name)
	if err != nil {
		return nil, err
	}
	r, err := sstable.Open(f, p.fileID(num), nil)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	it := r.NewIterator(sstable.IterOptions{})
	defer func() { err = errors.Join(err, it.Close(), r.Close()) }()
	var failed error
	t, err = p.tableOf(func(yield func(kv.Entry) bool) {
		var value []byte
		for ok := it.First(); ok && failed == nil; ok = it.Next() {
			e := *it.Entry()
			if failed = p.ctx.Err(); failed != nil || !p.fillsWith(&e, keys) {
				continue
			}
			if e.Apart {
				at, _ := kv.ParseValuePointer(e.Value)
				if value, failed = values.Read(at, value); failed != nil {
					return
				}
				e.Value, e.Apart = value, false
			}
			if !yield(e) {
				return
			}
		}
	})
	return t, errors.Join(err, failed, it.Err())
}

// filled takes out of the losses of the partition what the backup has. It adds the later
// versions up to what the partition had flushed: a key may have been deleted since the backup,
// by a tombstone that a merge has dropped, and is then back. (If only a value is lost, its entry
// says that there was no such tombstone after it.)
func (p *part) filled() {
	if p.backup == nil {
		return
	}
	kept := p.report.Losses[:0]
	for _, l := range p.report.Losses {
		if p.canFill(&l) {
			if !l.inLog() && l.FirstVersion < l.LastVersion {
				l.LastVersion = max(l.LastVersion, p.flushed())
			}
			l.FirstVersion = p.backup.version + 1
			l.Reason += fmt.Sprintf("; filled from the backup up to version %d", p.backup.version)
		}
		if l.FirstVersion <= l.LastVersion {
			kept = append(kept, l)
		}
	}
	p.report.Losses = kept
}

// replaced reports whether the backup says what was there in place of an entry of the damaged
// store.
func (m *merging) replaced(e *kv.Entry) bool {
	return e.Kind != kv.KindRangeDelete && e.Seq <= m.backup.version && m.lost.has(e.Key)
}

// without leaves out entries of an iterator that walks forward.
type without struct {
	kv.Iterator
	drop func(*kv.Entry) bool
}

func (it *without) First() bool { return it.pass(it.Iterator.First()) }
func (it *without) Next() bool  { return it.pass(it.Iterator.Next()) }

func (it *without) pass(ok bool) bool {
	for ok && it.drop(it.Iterator.Entry()) {
		ok = it.Iterator.Next()
	}
	return ok
}
