// Package stripe spreads a counter that many goroutines change over several cache lines. A
// counter in one cache line moves that line between the processors on each change.
package stripe

import "unsafe"

// Bytes is the size that a stripe is padded to: two cache lines, because processors fetch
// them in pairs.
const Bytes = 128

// Index returns a number below 1<<bits for the calling goroutine, chosen by the address of its
// stack: mostly the same number in each call, and other numbers for other goroutines. Neither
// is promised.
func Index(bits uint) uint64 {
	var here byte
	const golden = 0x9e3779b97f4a7c15                     // spreads the bits in which stacks differ
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // #nosec G103 -- only a number
	return stack * golden >> (64 - bits)
}
