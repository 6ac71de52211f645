package kv

// FileNum names a file of one partition. Numbers are handed out by the
// partition's manifest and never used twice.
type FileNum uint64

// FileID binds a file to its place: a block whose checksum was made for another
// partition or number is damage, even if the block itself is whole.
type FileID struct {
	Partition uint32
	Num       FileNum
}

// TableMeta describes one sstable: what its writer counted and what the
// manifest records. Smallest and Largest are immutable.
type TableMeta struct {
	Num      FileNum
	Size     uint64 // bytes of the file
	Entries  uint64 // versions of keys, tombstones included
	Deletes  uint64 // tombstones among them
	Smallest []byte // first key
	Largest  []byte // last key
	MinSeq   SeqNum
	MaxSeq   SeqNum
	// Values are the value files that the table points into, by number, with what it
	// needs of each; nil if all its values are its own. Immutable.
	Values []ValueRef
}

// Overlaps reports whether the table may hold a key in [smallest, largest].
func (m *TableMeta) Overlaps(smallest, largest []byte) bool {
	return string(m.Smallest) <= string(largest) && string(smallest) <= string(m.Largest)
}
