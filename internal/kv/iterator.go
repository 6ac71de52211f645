package kv

// Iterator walks stored entries in the order of Compare: key ascending, newest version
// of a key first. Memtables, sstables and merging iterators implement it.
//
// A walk has one direction: forward from First or SeekGE with Next, backward from Last
// or SeekLT with Prev, which visits the same entries in exactly the reverse order. To
// change direction, position it again.
//
// Obligations of an implementation:
//
//  1. A new iterator has no position: Valid is false until it is positioned.
//  2. Every move returns Valid(). Next on a backward walk and Prev on a forward
//     one panic: that is a bug of the caller.
//  3. Entry is borrowed: it and its slices hold until the next move or Close.
//  4. When a move fails, Valid is false and Err says why. The end of the data
//     is not an error: Valid is false and Err is nil. A caller that stops
//     because of !Valid must look at Err (taking a read error for the end has
//     lost data elsewhere: facebook/rocksdb 8.7.0).
//  5. Close releases what the iterator holds and returns Err. It is idempotent.
//
// An iterator is used by one goroutine at a time.
type Iterator interface {
	First() bool
	// SeekGE moves to the first entry whose key is >= key.
	SeekGE(key []byte) bool
	Next() bool

	Last() bool
	// SeekLT moves to the last entry whose key is < key.
	SeekLT(key []byte) bool
	Prev() bool

	Valid() bool
	Entry() *Entry
	Err() error
	Close() error
}
