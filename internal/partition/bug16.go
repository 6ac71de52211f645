//go:build bug16

package partition

// bugStaleRead plants a bug that the tests must find: a read answers at the version before the newest.
const bugStaleRead = true
