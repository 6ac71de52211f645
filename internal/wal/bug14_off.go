//go:build !bug14

package wal

const bugNoGap = false
