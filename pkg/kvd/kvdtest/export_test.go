package kvdtest

import "testing"

// FewerHistories has Conformance run the first n of its random histories, until t ends.
func FewerHistories(t *testing.T, n int) {
	all := historyCases
	historyCases = all[:n]
	t.Cleanup(func() { historyCases = all })
}
