//go:build bug28

package event

// bugIgnorePanics plants the bug that a panic in the engine is not told, so that
// the server recovers it and goes on. The tests must find it.
const bugIgnorePanics = true
