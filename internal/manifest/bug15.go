//go:build bug15

package manifest

// bugIgnoreRefs plants the bug that a table goes while a Ref still reads it. The
// tests must find it.
const bugIgnoreRefs = true
