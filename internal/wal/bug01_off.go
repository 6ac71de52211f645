//go:build !bug01

package wal

const bugAckEarly = false
