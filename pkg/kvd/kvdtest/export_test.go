package kvdtest

import "testing"

// WithoutLimits has Conformance leave out the limits, whose keys and values are large, until t ends.
func WithoutLimits(t *testing.T) {
	limits := limitCases
	limitCases = nil
	t.Cleanup(func() { limitCases = limits })
}

// Smaller has Conformance run the first of its random histories, which has calls of every kind, and
// pipelines of a few hundred operations, until t ends.
func Smaller(t *testing.T) {
	histories, ops := historyCases, manyOps
	historyCases, manyOps = histories[:1], 300 // a frame has at most 256
	t.Cleanup(func() { historyCases, manyOps = histories, ops })
}
