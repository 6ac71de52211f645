//go:build bug07

package partition

// bugFreeLogEarly plants a bug that the tests must find: the log is given back when a flush begins, not when the manifest is durable.
const bugFreeLogEarly = true
