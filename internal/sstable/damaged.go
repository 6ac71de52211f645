package sstable

import "github.com/kvd-db/kvd/internal/kv"

// Damaged returns a reader in the place of a file that cannot be opened: every read of a key,
// and every iterator, fails with damage. What the manifest says of the file is meta.
func Damaged(meta kv.TableMeta, partition uint32, damage error) *Reader {
	r := &Reader{meta: meta, damage: damage}
	r.footer.id = kv.FileID{Partition: partition, Num: meta.Num}
	r.filter = filter{lines: make([]byte, filterLineBytes), count: 1} // every key may be there
	r.closeOnce.Do(func() {})                                         // there is nothing to close
	return r
}

// Damage returns why the file could not be opened; nil if it was.
func (r *Reader) Damage() error { return r.damage }
