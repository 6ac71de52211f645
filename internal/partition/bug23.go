//go:build bug23

package partition

// bugSplitReads plants a bug that the tests must find: guards of one batch are read at two versions, what memory has and what the disk has, and the proposal names the newer one for both.
const bugSplitReads = true
