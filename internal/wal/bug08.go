//go:build bug08

package wal

// bugRotateUnsynced plants a bug that the tests must find: the segment that a rotation leaves is not synced.
const bugRotateUnsynced = true
