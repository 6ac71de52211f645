//go:build bug29

package vfs

// bugWatchNoWrites plants a bug that the tests must find: writes to files are not watched.
const bugWatchNoWrites = true
