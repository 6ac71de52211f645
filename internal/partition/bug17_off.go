//go:build !bug17

package partition

const bugSkipRanges = false
