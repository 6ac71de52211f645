//go:build bug12

package compaction

// bugTombstoneSnapshot plants the bug that a tombstone is dropped although a
// snapshot below it keeps an older version alive. The tests must find it.
const bugTombstoneSnapshot = true
