//go:build bug24

package engine

// bugAnyOpening plants a bug that the tests must find: a transaction commits though it read before the store was opened, what a power cut took away since.
const bugAnyOpening = true
