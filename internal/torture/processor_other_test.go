//go:build !linux

package torture

import "testing"

// onOneProcessor skips the test, which measures memory by /proc.
func onOneProcessor(t *testing.T, _ func()) {
	t.Helper()
	t.Skip("Linux is needed")
}
