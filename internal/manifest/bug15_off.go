//go:build !bug15

package manifest

const bugIgnoreRefs = false
