//go:build !bug16

package partition

const bugStaleRead = false
