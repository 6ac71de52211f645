//go:build bug04

package wal

// bugNoDirSync plants a bug that the tests must find: a new segment's directory entry is not synced.
const bugNoDirSync = true
