//go:build !unix

package daemon

// openFileLimit is assumed where the system does not tell how many files the process may
// have open.
func openFileLimit() uint64 { return commonFileLimit }
