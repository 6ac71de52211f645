package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// findVersion finds out which files made up the partition, if that can be known.
func (p *part) findVersion() error {
	current := p.entry(manifest.CurrentName)
	named, err := p.readCurrent()
	if err != nil {
		if errors.Is(err, kv.ErrUnsupportedVersion) {
			return err
		}
		current.Action = Lost
		p.damaged(current, err)
	} else {
		current.Action = Copied
		v, err := p.readManifest(named)
		if errors.Is(err, kv.ErrUnsupportedVersion) {
			return err
		}
		if err == nil {
			err = p.outdated(v)
		}
		f := p.entry(manifest.ManifestName(named))
		if err == nil {
			f.Action = Copied
			p.version = v
			return nil
		}
		f.Action = Lost
		p.damaged(f, err)
	}
	return p.findOther(named)
}

// outdated returns a *kv.CorruptionError if a table proves that v, with its CURRENT, is an older copy
// of what was there: v does not name the table, which is newer, and no crash can have left it so.
// A merge reads only what the manifest named, so a merge that was interrupted leaves nothing above
// v.FlushedSeq. A flush that was interrupted leaves only numbers that the log still has.
func (p *part) outdated(v *manifest.Version) error {
	for _, num := range p.numbers(manifest.FileTable) {
		if num <= v.Num {
			continue
		}
		m, err := p.describeTable(num)
		switch {
		case errors.Is(err, kv.ErrCorrupt):
			continue // perhaps a crash has left the beginning of it
		case err != nil:
			return err
		case m.MaxSeq <= v.FlushedSeq:
			continue
		}
		begins, err := p.logBegins()
		if err != nil {
			return err
		}
		if m.MinSeq <= max(v.FlushedSeq, begins) {
			return kv.Corruptf(p.source(manifest.ManifestName(v.Num)), -1,
				"it is an older copy, with CURRENT: it says that tables hold everything up to number %d, and %s, which is newer, holds %d to %d",
				v.FlushedSeq, manifest.TableName(num), m.MinSeq, m.MaxSeq)
		}
	}
	return nil
}

// describeTable returns what a table says of itself.
func (p *part) describeTable(num kv.FileNum) (m kv.TableMeta, err error) {
	f, err := p.src.Open(p.source(manifest.TableName(num)))
	if err != nil {
		return m, err
	}
	t, err := sstable.Open(f, p.fileID(num), nil)
	if err != nil {
		return m, errors.Join(err, f.Close())
	}
	return t.Meta(), t.Close()
}

// logBegins returns the number before the first record of the log; 0 if that is not known.
func (r *repair) logBegins() (before kv.SeqNum, err error) {
	enough := errors.New("enough")
	found, err := wal.Salvage(r.src, descriptor.LogDir(r.dir), r.descriptor.StoreID, func(rec wal.Record) error {
		before = rec.Base - 1
		return enough
	})
	if err == nil && found.NextSeq > 0 {
		before = found.NextSeq - 1 // there is no record
	}
	if errors.Is(err, enough) || errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return before, err
}

// findOther looks for a manifest that is provably not older than the one that CURRENT named;
// named is its number, 0 if it is not known.
func (p *part) findOther(named kv.FileNum) error {
	nums := p.numbers(manifest.FileManifest)
	if n := len(nums); n > 0 && nums[n-1] > named {
		adopted, err := p.adopt(nums[n-1])
		if adopted || err != nil {
			return err
		}
	}
	p.note("Partition %d: its manifest is lost, so all tables in its directory were merged. Tables that were no longer in use may be among them: keys that were deleted or overwritten may show older values.", p.id)
	p.lose(Loss{
		Partition: p.id, FirstVersion: 1, LastVersion: kv.MaxSeqNum, File: path.Join(p.in, manifest.CurrentName),
		Reason: "the manifest is lost, so which tables were in use is not known",
	})
	return nil
}

// adopt takes a manifest for the current one if it is provably complete.
func (p *part) adopt(num kv.FileNum) (adopted bool, err error) {
	name := manifest.ManifestName(num)
	v, err := p.readManifest(num)
	switch {
	case errors.Is(err, kv.ErrUnsupportedVersion):
		return false, err
	case err != nil:
		f := p.entry(name)
		f.Action = Lost
		p.damaged(f, err)
		return false, nil
	case !p.complete(v):
		return false, nil
	}
	p.entry(name).Action = Copied
	p.version = v
	p.note("Partition %d: CURRENT or its manifest is lost. %s counts instead: it is not older, all of its files are there, and no table is newer.", p.id, name)
	return true, nil
}

// complete reports whether all files of a version are there with their sizes, and no table
// or value file has a number above that of its manifest.
func (p *part) complete(v *manifest.Version) bool {
	has := func(name string, size uint64) bool {
		f := p.files[path.Join(p.in, name)]
		return f != nil && uint64(f.Bytes) == size
	}
	for t := range v.Tables() {
		if !has(manifest.TableName(t.Num), t.Size) {
			return false
		}
	}
	for i := range v.Values {
		if !has(manifest.ValuesName(v.Values[i].Num), v.Values[i].Size) {
			return false
		}
	}
	for _, kind := range []manifest.FileKind{manifest.FileTable, manifest.FileValues} {
		for _, num := range p.numbers(kind) {
			if num > v.Num {
				return false
			}
		}
	}
	return true
}

var errMissing = errors.New("the file is missing")

// maxManifest bounds the manifests that are read into memory.
const maxManifest = 64 << 20

func (p *part) readCurrent() (kv.FileNum, error) {
	data, err := p.readSmall(manifest.CurrentName)
	if err != nil {
		return 0, err
	}
	owner, num, err := manifest.DecodeCurrent(manifest.CurrentName, data)
	if err == nil && owner != uint32(p.id) {
		err = fmt.Errorf("it belongs to partition %d", owner)
	}
	return num, err
}

func (p *part) readManifest(num kv.FileNum) (*manifest.Version, error) {
	name := manifest.ManifestName(num)
	data, err := p.readSmall(name)
	if err != nil {
		return nil, err
	}
	v, err := manifest.DecodeManifest(name, data)
	if err == nil && (v.Partition != uint32(p.id) || v.Num != num) {
		err = fmt.Errorf("it is manifest %d of partition %d", v.Num, v.Partition)
	}
	return v, err
}

// readSmall returns the content of a small file of the partition.
func (p *part) readSmall(name string) ([]byte, error) {
	data, err := vfs.ReadSmall(p.src, p.source(name), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		err = errMissing
	}
	return data, err
}
