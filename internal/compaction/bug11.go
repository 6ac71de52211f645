//go:build bug11

package compaction

// bugTombstoneEarly plants the bug that a tombstone is dropped one level early,
// while older versions of its key are in runs that the merge does not read. The
// tests must find it.
const bugTombstoneEarly = true
