//go:build !bug09

package wal

const bugTailIsDamage = false
