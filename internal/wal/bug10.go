//go:build bug10

package wal

// bugDamageIsTail plants a bug that the tests must find: damage in the middle of the log is dropped as a torn tail.
const bugDamageIsTail = true
