//go:build !bug29

package vfs

const bugWatchNoWrites = false
