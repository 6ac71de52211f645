//go:build !bug22

package partition

const bugForgetNotes = false
