//go:build !bug02

package wal

const bugIgnoreSyncError = false
