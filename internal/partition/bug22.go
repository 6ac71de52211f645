//go:build bug22

package partition

// bugForgetNotes plants the bug that whoever gives up the orchestrator's role does
// not look whether there is something new to do. The tests must find it.
const bugForgetNotes = true
