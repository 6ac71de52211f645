//go:build !bug18

package partition

const bugReplyBlocks = false
