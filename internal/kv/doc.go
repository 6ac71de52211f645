// Package kv holds the words that every floor of kvd shares: keys, entries,
// sequence numbers, batches of writes, limits and errors.
//
// It is the ground floor: it imports the standard library alone and knows
// nothing of files, partitions or the network.
//
// # Order
//
// A stored entry is a user key with the sequence number of the commit that
// wrote it. Entries are ordered by key ascending (bytes.Compare), then by
// sequence number descending, so that the newest version of a key comes first.
// In other texts that pair is called an internal key or an MVCC key.
//
// # One sequence number per commit
//
// The commit log gives one sequence number to each commit unit: a single
// write, or an atomic batch, whose operations all share it. It is the version
// that a caller sees. Two different commits never share one, so a (key,
// sequence number) pair names at most one put or delete; [WriteBatch] keeps that
// true inside a batch by letting the last operation on a key win. Beside it there
// may be range tombstones that start at the key: they are no versions of it, and
// hide only what has a lower number.
//
// # The record
//
// What the commit log stores is a record: the operations that one turn of one
// partition (a micro-batch), or one atomic batch over several partitions,
// brings. The log sees it as bytes; [RecordEncoder] and [DecodeRecord] are the
// only two places that know the layout, which is given with [RecordEncoder].
package kv
