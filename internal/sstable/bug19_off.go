//go:build !bug19

package sstable

const bugFilterUnchecked = false
