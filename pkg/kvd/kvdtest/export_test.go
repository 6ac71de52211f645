package kvdtest

import "testing"

// Smaller has Conformance run the first two of its random histories, and pipelines of a few
// hundred operations, until t ends.
func Smaller(t *testing.T) {
	histories, ops := historyCases, manyOps
	historyCases, manyOps = histories[:2], 300 // a frame has at most 256
	t.Cleanup(func() { historyCases, manyOps = histories, ops })
}
