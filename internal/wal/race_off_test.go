//go:build !race

package wal

// imageShare: one image in so many is checked.
const imageShare = 1
