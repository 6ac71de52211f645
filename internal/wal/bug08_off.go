//go:build !bug08

package wal

const bugRotateUnsynced = false
