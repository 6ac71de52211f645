package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
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
