//go:build bug09

package wal

// bugTailIsDamage plants a bug that the tests must find: a torn tail refuses to open.
const bugTailIsDamage = true
