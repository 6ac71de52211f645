package repair

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/verify"
	"github.com/kvd-db/kvd/internal/vfs"
)

// part is one partition on its way to the new store.
type part struct {
	*repair
	id  int
	in  string // its directory inside the store: p-0000
	dir string // its new directory

	version  *manifest.Version // nil: unknown
	next     kv.FileNum        // the next number of a new file
	reserved []kv.FileNum      // are used before next
	damage   bool              // something needed does not verify
	tables   []*table
	values   map[kv.FileNum]*values
	fills    uint64         // entries of the backup
	shared   map[string]int // by value file: the loss that further lost values share, see loseOne

	newFlushed kv.SeqNum // up to which number the tables of the new partition hold everything
}

// table is a table of the partition.
type table struct {
	file     *File
	meta     kv.TableMeta // of the copy, or of the table that was made of what verifies
	want     *kv.TableMeta
	ranges   []kv.Entry
	whole    bool
	inTarget bool // there is a copy, under the number in meta
	blind    bool // it is damaged, and a range tombstone may be lost: all keys from the first gap on may have been deleted
}

// values is a value file of the partition.
type values struct {
	file  *File
	meta  kv.ValueFileMeta
	whole bool              // there is a verified copy
	rest  *valuefile.Reader // of a damaged one, and of one of which no manifest says what it is; nil: nothing can be read
}

// findVersions finds out which files made up each partition.
func (r *repair) findVersions() error {
	for id := range r.descriptor.Partitions {
		in := descriptor.PartitionDir("", id)
		p := &part{
			repair: r, id: id, in: in, dir: path.Join(r.out.dir, in), values: map[kv.FileNum]*values{},
		}
		if err := p.findVersion(); err != nil {
			return fmt.Errorf("partition %d: %w", id, err)
		}
		r.parts = append(r.parts, p)
	}
	return nil
}

// flushed returns up to which number the tables of the damaged partition held everything; 0 if
// its manifest is lost.
func (p *part) flushed() kv.SeqNum {
	if p.version == nil {
		return 0
	}
	return p.version.FlushedSeq
}

func (r *repair) partitions() error {
	for _, p := range r.parts {
		if err := p.repairFiles(); err != nil {
			return fmt.Errorf("partition %d: %w", p.id, err)
		}
	}
	return nil
}

// repairFiles makes the partition of the new store.
func (p *part) repairFiles() (err error) {
	if err := p.out.mkdir(p.dir); err != nil {
		return err
	}
	defer func() {
		for _, v := range p.values {
			if v.rest != nil {
				err = errors.Join(err, v.rest.Close())
			}
		}
	}()
	if err := p.copyFiles(); err != nil {
		return err
	}
	p.loseGaps()
	if p.version != nil && !p.damage && len(p.fillable()) == 0 {
		return p.publish(p.version)
	}
	return p.merge()
}

// publish writes the manifest and CURRENT.
func (p *part) publish(v *manifest.Version) error {
	name, data, current := v.Encode()
	if _, err := manifest.DecodeManifest(name, data); err != nil {
		return fmt.Errorf("the new manifest is not valid, which is a bug: %w", err)
	}
	if err := vfs.WriteAtomic(p.out.fsys, path.Join(p.dir, name), data); err != nil {
		return err
	}
	p.newFlushed = v.FlushedSeq
	p.maxSeq = max(p.maxSeq, v.MaxSeq)
	p.report.Entries += v.Entries()
	return vfs.WriteAtomic(p.out.fsys, path.Join(p.dir, manifest.CurrentName), current)
}

// entry returns the report's entry of a file in the partition's directory.
func (p *part) entry(name string) *File { return p.file(path.Join(p.in, name)) }

// source returns the path of a file of the damaged partition.
func (p *part) source(name string) string { return path.Join(p.repair.dir, p.in, name) }

// copyFiles copies and verifies what the version names or, if it is unknown, all that is
// there.
func (p *part) copyFiles() error {
	for name := range p.files {
		if path.Dir(name) == p.in {
			_, num := manifest.ParseName(path.Base(name))
			p.next = max(p.next, num+1)
		}
	}
	if p.version != nil {
		p.next = max(p.next, p.version.NextFile)
	}
	for _, m := range p.wantedValues() {
		if err := p.copyValues(m); err != nil {
			return err
		}
	}
	for _, t := range p.wantedTables() {
		if err := p.copyTable(t); err != nil {
			return err
		}
	}
	if p.version == nil {
		return p.checkNeeds()
	}
	return nil
}

// checkNeeds looks, without a manifest, for value files that have less than a table needs of them:
// these are files of another store.
func (p *part) checkNeeds() error {
	for _, t := range p.tables {
		if !t.whole {
			continue
		}
		for _, ref := range t.meta.Values {
			v := p.values[ref.File]
			if v == nil || !v.whole || ref.Values <= v.meta.Values && ref.Bytes <= v.meta.Bytes {
				continue
			}
			name := manifest.ValuesName(ref.File)
			p.damaged(v.file, kv.Corruptf(name, -1, "it is another file: it holds %s, and %s needs %d values of %d bytes",
				verify.DescribeValues(&v.meta), t.file.Path, ref.Values, ref.Bytes))
			v.whole, v.file.Action = false, Lost
			if err := errors.Join(v.rest.Close(), p.out.fsys.Remove(path.Join(p.dir, name))); err != nil {
				return err
			}
			v.rest = nil
		}
	}
	return nil
}

// wantedValues returns the value files to copy, in order. If the version is unknown, they
// have numbers only.
func (p *part) wantedValues() (all []kv.ValueFileMeta) {
	if p.version != nil {
		return p.version.Values
	}
	for _, num := range p.numbers(manifest.FileValues) {
		all = append(all, kv.ValueFileMeta{Num: num})
	}
	return all
}

func (p *part) wantedTables() (all []*table) {
	if p.version == nil {
		for _, num := range p.numbers(manifest.FileTable) {
			all = append(all, &table{file: p.entry(manifest.TableName(num)), meta: kv.TableMeta{Num: num}})
		}
		return all
	}
	for m := range p.version.Tables() {
		all = append(all, &table{file: p.entry(manifest.TableName(m.Num)), meta: *m, want: m})
	}
	return all
}

// numbers returns the numbers of the files of a kind in the directory, in order.
func (p *part) numbers(kind manifest.FileKind) (nums []kv.FileNum) {
	for name := range p.files {
		if k, num := manifest.ParseName(path.Base(name)); path.Dir(name) == p.in && k == kind {
			nums = append(nums, num)
		}
	}
	slices.Sort(nums)
	return nums
}

// copyValues copies a value file, if it is whole. Otherwise its values are read one by one.
func (p *part) copyValues(m kv.ValueFileMeta) error {
	name := manifest.ValuesName(m.Num)
	v := &values{file: p.entry(name), meta: m}
	p.values[m.Num] = v
	to := path.Join(p.dir, name)
	err := p.out.copy(p.src, p.source(name), to, p.read)
	if errors.Is(err, fs.ErrNotExist) {
		p.damage = true
		v.file.Damage = append(v.file.Damage, Damage{Offset: -1, Reason: errMissing.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	got, err := p.verifyValues(to, m.Num)
	if err == nil && p.version != nil {
		err = verify.MatchValues(name, got, &m)
	}
	if err == nil {
		v.whole, v.meta, v.file.Action = true, got, Copied
		if p.version == nil {
			return p.openRest(v)
		}
		return nil
	}
	if !errors.Is(err, kv.ErrCorrupt) {
		return err
	}
	p.damage = true
	v.file.Action = Salvaged
	p.damaged(v.file, err)
	if err := p.out.fsys.Remove(to); err != nil {
		return err
	}
	return p.openRest(v)
}

// openRest opens what is left of a damaged value file.
func (p *part) openRest(v *values) error {
	f, err := p.src.Open(p.source(manifest.ValuesName(v.meta.Num)))
	if errors.Is(err, fs.ErrNotExist) {
		v.file.Action = Lost
		return nil
	}
	if err != nil {
		return err
	}
	want := &v.meta
	if p.version == nil {
		want = nil
	}
	v.rest, err = valuefile.OpenDamaged(f, p.fileID(v.meta.Num), want)
	if err != nil {
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, kv.ErrCorrupt) {
		v.file.Action = Lost
		return nil
	}
	return err
}

func (p *part) fileID(num kv.FileNum) kv.FileID {
	return kv.FileID{Partition: uint32(p.id), Num: num}
}

// verifyValues reads every byte of a copied value file.
func (p *part) verifyValues(name string, num kv.FileNum) (m kv.ValueFileMeta, err error) {
	v, err := verify.OpenValues(p.out.fsys, name, p.fileID(num))
	if err != nil {
		return m, err
	}
	return v.Meta(), errors.Join(v.Verify(p.ctx, nil), v.Close())
}

// copyTable copies a table, if it and the value files that it needs are whole. Otherwise it
// makes a table of what verifies, or none.
func (p *part) copyTable(t *table) error {
	p.tables = append(p.tables, t)
	name := manifest.TableName(t.meta.Num)
	to := path.Join(p.dir, name)
	err := p.out.copy(p.src, p.source(name), to, p.read)
	if errors.Is(err, fs.ErrNotExist) {
		p.damage = true
		t.file.Damage = append(t.file.Damage, Damage{Offset: -1, Reason: errMissing.Error()})
		p.loseTable(t, errMissing.Error())
		return nil
	}
	if err != nil {
		return err
	}
	t.inTarget = true
	err = p.verifyTable(t, to)
	if err == nil {
		t.whole, t.file.Action = true, Copied
		for _, ref := range t.meta.Values {
			if v := p.values[ref.File]; v == nil || !v.whole {
				p.damage = true
			}
		}
		return nil
	}
	if !errors.Is(err, kv.ErrCorrupt) {
		return err
	}
	p.damage = true
	if err := p.remove(t); err != nil {
		return err
	}
	return p.salvage(t, err)
}

// remove removes the copy of a table.
func (p *part) remove(t *table) error {
	t.inTarget = false
	return p.out.fsys.Remove(path.Join(p.dir, manifest.TableName(t.meta.Num)))
}

// verifyTable reads every byte of a copied table, and compares it with the manifest.
func (p *part) verifyTable(t *table, name string) (err error) {
	f, err := p.out.fsys.Open(name)
	if err != nil {
		return err
	}
	r, err := sstable.Open(f, p.fileID(t.meta.Num), nil)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.Verify(p.ctx, nil); err != nil {
		return err
	}
	got := r.Meta()
	if t.want != nil {
		if err := verify.MatchTable(name, &got, t.want); err != nil {
			return err
		}
	}
	t.meta, t.ranges = got, r.RangeTombstones().All()
	return nil
}

// loseTable reports that nothing of a table is in the new store.
func (p *part) loseTable(t *table, reason string) {
	t.file.Action = Lost
	l := Loss{Partition: p.id, FirstVersion: 1, LastVersion: kv.MaxSeqNum, File: t.file.Path, Reason: reason}
	if m := t.want; m != nil {
		l.FirstKey, l.LastKey, l.FirstVersion, l.LastVersion, l.Entries = m.Smallest, m.Largest, m.MinSeq, m.MaxSeq, m.Entries
	}
	p.lose(l)
}

// salvage makes a table of what verifies in a damaged one. cause is what was found wrong.
func (p *part) salvage(t *table, cause error) error {
	w := p.newTable()
	_, usable, err := p.readDamaged(t, cause, w.add)
	if err != nil || !usable || w.entries == 0 {
		return errors.Join(err, w.discard())
	}
	t.meta, t.ranges, err = w.finish()
	t.inTarget = err == nil
	return err
}

// readDamaged passes to visit what verifies in a damaged table, and reports what is lost. cause is
// what was found wrong. The table is not usable if it may be another one, also after entries were
// passed on; then all of it is lost.
func (p *part) readDamaged(t *table, cause error, visit func(*kv.Entry) error) (found sstable.Salvaged, usable bool, err error) {
	f, err := p.src.Open(p.source(manifest.TableName(t.meta.Num)))
	if err != nil {
		return found, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	want := t.want
	var foreign, deletes uint64
	found, err = sstable.Salvage(p.ctx, f, p.fileID(t.meta.Num), func(e *kv.Entry) error {
		if want != nil && (e.Seq < want.MinSeq || e.Seq > want.MaxSeq || bytes.Compare(e.Key, want.Smallest) < 0 || bytes.Compare(e.Key, want.Largest) > 0) {
			foreign++
			return nil
		}
		if e.Kind != kv.KindPut {
			deletes++
		}
		return visit(e)
	})
	if err != nil {
		return found, false, err
	}
	t.file.Entries, t.file.Blocks = found.Entries, found.Blocks
	for _, d := range found.Damage {
		t.file.Damage = append(t.file.Damage, Damage(d))
	}
	if len(found.Damage) == 0 {
		p.damaged(t.file, cause)
	}
	another := found.Meta != nil && want != nil && !p.sameContents(found.Meta, want)
	if found.Foreign != "" || foreign > 0 || another {
		p.loseTable(t, cause.Error())
		return found, false, nil
	}
	t.file.Action = Salvaged
	p.reportTable(t, &found, deletes)
	return found, true, nil
}

// sameContents compares what a damaged table says of itself with the manifest. A file that
// was cut has another size, and its number is in the name of the file.
func (p *part) sameContents(got, want *kv.TableMeta) bool {
	m := *got
	m.Num, m.Size = want.Num, want.Size
	return verify.SameTable(&m, want)
}

// reportTable reports what a damaged table lost. deletes is how many deletes and range deletes of it
// verify.
func (p *part) reportTable(t *table, found *sstable.Salvaged, deletes uint64) {
	bounds := t.want
	if bounds == nil {
		bounds = found.Meta
	}
	if bounds != nil && found.Entries == bounds.Entries {
		return // all entries are there; only what helps to find them is damaged
	}
	for _, g := range found.Gaps {
		l := Loss{
			Partition: p.id, FirstKey: g.After, LastKey: g.Before, FirstVersion: 1, LastVersion: kv.MaxSeqNum, Entries: g.Entries,
			File: t.file.Path, Reason: fmt.Sprintf("%d bytes at offset %d do not verify", g.Bytes, g.Offset),
		}
		if bounds != nil {
			l.FirstVersion, l.LastVersion = bounds.MinSeq, bounds.MaxSeq
			if l.FirstKey == nil {
				l.FirstKey = bounds.Smallest
			}
			if l.LastKey == nil {
				l.LastKey = bounds.Largest
			}
			if l.Entries == 0 {
				l.Entries = bounds.Entries - found.Entries
			}
		}
		p.lose(l)
	}
	// Without bounds everything in the partition may be missing, which findOther has reported.
	if t.blind = bounds != nil && deletes < bounds.Deletes && !found.RangesKnown; t.blind && len(found.Gaps) > 0 {
		l := Loss{
			Partition: p.id, FirstKey: found.Gaps[0].After, LastKey: bounds.Largest, FirstVersion: bounds.MinSeq, LastVersion: bounds.MaxSeq,
			File: t.file.Path, Reason: "a range delete may be among what is lost, so all keys from there on are",
		}
		if l.FirstKey == nil {
			l.FirstKey = bounds.Smallest
		}
		p.lose(l)
	}
	if len(found.Gaps) == 0 {
		p.loseTable(t, "it has fewer entries than it should have")
		t.file.Action = Salvaged
	}
}
