//go:build bug01

package wal

// bugAckEarly plants a bug that the tests must find: a record counts as synced before its fsync.
const bugAckEarly = true
