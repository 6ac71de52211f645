//go:build !unix

package daemon

// openFileLimit returns the assumed limit of open files on systems that do not tell it.
func openFileLimit() uint64 { return commonFileLimit }
