//go:build !bug11

package compaction

const bugTombstoneEarly = false
