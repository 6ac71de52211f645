//go:build race

package wal

// imageShare: one image in so many is checked, because the race detector makes that ten
// times as expensive.
const imageShare = 6
