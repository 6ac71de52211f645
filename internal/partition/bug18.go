//go:build bug18

package partition

// bugReplyBlocks plants a bug that the tests must find: whoever answers waits until the caller listens.
const bugReplyBlocks = true
