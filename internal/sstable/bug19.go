//go:build bug19

package sstable

// bugFilterUnchecked plants the bug that a filter is used without its checksum
// being verified: a flipped bit then hides a live key. The tests must find it.
const bugFilterUnchecked = true
