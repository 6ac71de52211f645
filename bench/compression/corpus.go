package main

import (
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// kind is what a file is made of.
type kind struct {
	title  func(size int) string
	around int // bytes of each piece that stay as they are: checksums and lengths
	data   []data
	sizes  []int
	cut    func(t *trial, entries []kv.Entry, size int) (corpus, error)
}

// corpus is the pieces of a file that would be compressed, each by itself.
type corpus struct {
	pieces [][]byte
	note   string // on how they are read
}

func (c *corpus) bytes() int {
	n := 0
	for _, p := range c.pieces {
		n += len(p)
	}
	return n
}

var kinds = []kind{
	{
		title:  func(size int) string { return fmt.Sprintf("data blocks of %d KiB", size>>10) },
		around: blockTrailer,
		data:   []data{randoms(100), records(0), counters, pointers},
		sizes:  []int{4 << 10, 16 << 10},
		cut:    blocks,
	}, {
		title:  func(int) string { return "values of value files" },
		around: 8,
		data:   []data{randoms(1 << 10), records(2), records(20)},
		sizes:  []int{1},
		cut:    values,
	}, {
		title:  func(size int) string { return fmt.Sprintf("groups of the log, puts in each: %d", size) },
		around: frameHeader,
		data:   []data{randoms(128), records(0)},
		sizes:  []int{1, 16, 256},
		cut:    groups,
	},
}

// values is the values alone.
func values(_ *trial, entries []kv.Entry, _ int) (c corpus, err error) {
	c.note = "a Read is one read and its checksum"
	for i := range entries {
		c.pieces = append(c.pieces, entries[i].Value)
	}
	return c, nil
}
