//go:build bug20

package keyhash

// bugSignedModulo plants a bug that the tests must find: the partition is a signed remainder.
const bugSignedModulo = true
