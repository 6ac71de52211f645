//go:build bug21

package valuefile

// bugValueUnchecked plants the bug that a value is used without its checksum being
// verified. The tests must find it.
const bugValueUnchecked = true
