//go:build !bug10

package wal

const bugDamageIsTail = false
