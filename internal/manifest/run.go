package manifest

import (
	"bytes"
	"sort"

	"github.com/kvd-db/kvd/internal/kv"
)

// Run is a sorted run: tables ordered by key that share no key. It may be
// empty. A Run inside a Version is immutable.
type Run []kv.TableMeta

// Bytes returns the size of the run's files.
func (r Run) Bytes() uint64 {
	var sum uint64
	for i := range r {
		sum += r[i].Size
	}
	return sum
}

// Entries returns how many entries the run holds, tombstones included.
func (r Run) Entries() uint64 {
	var sum uint64
	for i := range r {
		sum += r[i].Entries
	}
	return sum
}

// Deletes returns how many tombstones the run holds.
func (r Run) Deletes() uint64 {
	var sum uint64
	for i := range r {
		sum += r[i].Deletes
	}
	return sum
}

// SeqBounds returns the smallest and the largest sequence number in the run,
// zeros if it is empty.
func (r Run) SeqBounds() (smallest, largest kv.SeqNum) {
	for i := range r {
		if i == 0 || r[i].MinSeq < smallest {
			smallest = r[i].MinSeq
		}
		largest = max(largest, r[i].MaxSeq)
	}
	return smallest, largest
}

// Find returns the only table that may hold key, nil if there is none. The table is part
// of the run. Cost: a binary search.
func (r Run) Find(key []byte) *kv.TableMeta {
	i := r.Seek(key)
	if i == len(r) || bytes.Compare(key, r[i].Smallest) < 0 {
		return nil
	}
	return &r[i]
}

// Overlapping returns the tables that may hold a key in [smallest, largest], a part of
// the run. Cost: two binary searches.
func (r Run) Overlapping(smallest, largest []byte) Run {
	from := r.Seek(smallest)
	rest := r[from:]
	to := sort.Search(len(rest), func(i int) bool { return bytes.Compare(rest[i].Smallest, largest) > 0 })
	return rest[:to:to]
}

// Seek returns the index of the first table whose bounds are not entirely before key,
// len(r) if there is none. Cost: a binary search.
func (r Run) Seek(key []byte) int {
	return sort.Search(len(r), func(i int) bool { return bytes.Compare(r[i].Largest, key) >= 0 })
}
