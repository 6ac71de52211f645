//go:build !bug28

package event

const bugIgnorePanics = false
