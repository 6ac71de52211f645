//go:build bug05

package vfs

// bugNoSyncAfterRename plants a bug that the tests must find: a rename is not followed by a sync of the directory.
const bugNoSyncAfterRename = true
