//go:build !bug12

package compaction

const bugTombstoneSnapshot = false
