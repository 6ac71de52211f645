//go:build !bug04

package wal

const bugNoDirSync = false
