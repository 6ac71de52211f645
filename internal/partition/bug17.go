//go:build bug17

package partition

// bugSkipRanges plants a bug that the tests must find: a commit does not look whether a range that was scanned has changed (phantom).
const bugSkipRanges = true
