//go:build bug03

package wal

// bugRetrySync plants a bug that the tests must find: a failed fsync is tried again.
const bugRetrySync = true
