package partition

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
)

// A damaged table, or a damaged part of one, makes its keys unreadable and nothing else: a read
// that reaches it fails, and is never answered from older data. Compaction leaves it where
// it is. A damaged value makes its key unreadable.

// damagedFiles are the tables and value files that were found damaged, by number.
type damagedFiles struct {
	mu   sync.Mutex
	nums map[kv.FileNum]bool
}

func (d *damagedFiles) has(num kv.FileNum) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nums[num]
}

// add adds the files that damage names.
func (d *damagedFiles) add(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range kv.Corruptions(err) {
		if kind, num := manifest.ParseName(path.Base(c.File)); kind == manifest.FileTable || kind == manifest.FileValues {
			if d.nums == nil {
				d.nums = make(map[kv.FileNum]bool)
			}
			d.nums[num] = true
		}
	}
}

func (d *damagedFiles) remove(num kv.FileNum) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nums, num)
}

// Verified notes the result of verifying a table or value file: damaged with err, or whole.
// Compaction leaves a damaged one alone.
func (p *Partition) Verified(num kv.FileNum, err error) {
	if err == nil {
		p.damaged.remove(num)
		return
	}
	p.damaged.add(err)
}

// damagedTable returns a reader in the place of a table that could not be opened, if damage is
// the cause and is allowed; else the error.
func (p *Partition) damagedTable(meta *kv.TableMeta, err error) (*sstable.Reader, error) {
	name := p.path(manifest.TableName(meta.Num))
	if errors.Is(err, fs.ErrNotExist) {
		err = kv.Corruptf(name, -1, "table is missing; the manifest names it")
	}
	if !p.opts.AllowDamaged || !errors.Is(err, kv.ErrCorrupt) {
		return nil, err
	}
	damage := kv.Corruptions(err)
	for _, c := range damage {
		c.First, c.Last = meta.Smallest, meta.Largest
	}
	p.corrupt(err)
	return sstable.Damaged(*meta, uint32(p.id), damage[0]), nil
}

// stopAtDamage returns the part of a range that a walk reaches before the first table that could
// not be opened, and the error with which it then ends; nil if it meets none.
func (l *levels) stopAtDamage(bounds kv.Range, reverse bool) (_ kv.Range, damage error) {
	for _, r := range l.damaged {
		meta := r.Meta()
		after := append(slices.Clone(meta.Largest), 0)
		switch {
		case bytes.Compare(after, bounds.Start) <= 0, len(bounds.End) > 0 && bytes.Compare(meta.Smallest, bounds.End) >= 0:
		case reverse:
			bounds.Start, damage = after, r.Damage()
		default:
			bounds.End, damage = meta.Smallest, r.Damage()
		}
	}
	return bounds, damage
}
