//go:build !bug07

package partition

const bugFreeLogEarly = false
