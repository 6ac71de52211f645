//go:build !bug20

package keyhash

const bugSignedModulo = false
