//go:build bug02

package wal

// bugIgnoreSyncError plants a bug that the tests must find: a failed fsync counts as a good one.
const bugIgnoreSyncError = true
