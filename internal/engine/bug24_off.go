//go:build !bug24

package engine

const bugAnyOpening = false
