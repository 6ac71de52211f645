package sstable

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// A range that is cut directly after a key makes two files that are disjoint by
// their bounds, however much of the first file is dropped later.
func TestBoundsOfFilesThatCutARange(t *testing.T) {
	for end, largest := range map[string]string{
		"k\x00":     "k", // a tombstone alone: its reach
		"h\x00":     "h",
		"g\x00":     "g", // the last key
		"k\x00\x00": "k\x00",
		"k":         "k", // no key is directly before it
		"b":         "g", // the last key is after it
	} {
		entries := []kv.Entry{rangeDel("a", end, 9), put("c", "1", 10), put("g", "1", 10)}
		sortEntries(entries)
		_, meta := build(t, entries, WriterOptions{})
		require.Equal(t, largest, string(meta.Largest), "range ends at %q", end)
	}
}
