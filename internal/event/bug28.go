//go:build bug28

package event

// bugIgnorePanics plants the bug that a panic in the engine is told to nobody, so that
// the server recovers it and goes on. The tests must find it.
const bugIgnorePanics = true
