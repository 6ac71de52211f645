package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/vfs"
)

func TestDefaultPartitionsGoByTheProcessors(t *testing.T) {
	for processors, want := range map[int]int{1: 4, 2: 4, 3: 8, 4: 8, 5: 16, 8: 16, 16: 32, 32: 64, 33: 64, 500: 64} {
		assert.Equal(t, want, defaultPartitions(processors), "%d processors", processors)
	}
	e := open(t, Options{FS: vfs.NewMem(), LowDiskBytes: 1})
	assert.Len(t, e.partitions, DefaultPartitions())
}
