//go:build !bug23

package partition

const bugSplitReads = false
