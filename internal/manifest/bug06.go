//go:build bug06

package manifest

// bugPointerFirst plants the bug that CURRENT is published before the manifest
// and the names of its tables are durable. The tests must find it.
const bugPointerFirst = true
