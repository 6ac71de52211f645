//go:build !bug05

package vfs

const bugNoSyncAfterRename = false
