//go:build !bug13

package mergeiter

const bugErrorIsEnd = false
