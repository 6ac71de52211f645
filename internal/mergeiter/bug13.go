//go:build bug13

package mergeiter

// bugErrorIsEnd plants the bug that a merge takes a source's read error for its
// end and loses the rest of its keys. The tests must find it.
const bugErrorIsEnd = true
