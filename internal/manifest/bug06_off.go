//go:build !bug06

package manifest

const bugPointerFirst = false
