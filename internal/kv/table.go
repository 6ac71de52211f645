package kv

// FileNum names a file of one partition. The partition's manifest assigns the numbers
// and never reuses one.
type FileNum uint64

// FileID identifies a file: a block whose checksum was computed for another partition
// or number is damage, even if the block itself is whole.
type FileID struct {
	Partition uint32
	Num       FileNum
}

// TableMeta describes one sstable: what its writer counted and what the
// manifest records. Smallest and Largest are immutable.
type TableMeta struct {
	Num      FileNum
	Size     uint64 // bytes of the file
	Entries  uint64 // versions of keys, including tombstones
	Deletes  uint64 // how many of them are tombstones
	Smallest []byte // first key
	Largest  []byte // last key
	MinSeq   SeqNum
	MaxSeq   SeqNum
	// Values lists the value files that the table points into, by number, with what it
	// uses of each; nil if no value is separated. Immutable.
	Values []ValueRef
}

// Overlaps reports whether the table may hold a key in [smallest, largest].
func (m *TableMeta) Overlaps(smallest, largest []byte) bool {
	return string(m.Smallest) <= string(largest) && string(smallest) <= string(m.Largest)
}
