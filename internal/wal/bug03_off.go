//go:build !bug03

package wal

const bugRetrySync = false
