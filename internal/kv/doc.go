// Package kv defines the types that every package of kvd shares: keys, entries,
// sequence numbers, batches of writes, limits and errors.
//
// It imports the standard library alone and knows nothing of files, partitions or the
// network.
//
// # Order
//
// A stored entry is a user key with the sequence number of the commit that wrote it.
// Entries are ordered by key ascending (bytes.Compare), then by sequence number
// descending, so that the newest version of a key comes first. In other texts that pair
// is called an internal key or an MVCC key.
//
// # One sequence number per commit
//
// The commit log assigns one sequence number to each commit unit: a single write, or an
// atomic batch, whose operations all share it. Callers see it as the version. Two
// commits never share one, so a (key, sequence number) pair names at most one put or
// delete; [WriteBatch] keeps that true inside a batch by letting the last operation on
// a key win. A range tombstone may start at the same key with the same number: it is
// not a version of the key, and hides only entries with a lower number.
package kv
