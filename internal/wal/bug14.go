//go:build bug14

package wal

// bugNoGap plants a bug that the tests must find: numbers go on without a gap after a crash.
const bugNoGap = true
