package formats

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
)

// FuzzFormatOf: whatever a file holds, it has a version or is damaged.
func FuzzFormatOf(f *testing.F) {
	f.Add([]byte(nil))
	f.Add((&descriptor.Descriptor{Partitions: 1}).Encode())
	f.Add((&descriptor.Clock{StoreID: 1, Bound: 1}).Encode())
	f.Add([]byte("kvd-current 1 partition 0 MANIFEST-000001 00000000\n"))
	f.Add([]byte("kvd.wal\n"))
	f.Add([]byte("kvd.rft\n"))
	f.Add((&descriptor.Node{Cluster: 1, Node: 1, Members: map[uint64]string{1: "a"}}).Encode())
	f.Add([]byte("kvdMANIF"))
	f.Add([]byte("\xff\xff\xff\xff\x04\x00\x00\x00\x00\x00\x00\x00kvd-sst\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range Kinds {
			version, err := kind.formatOf("file", data)
			if err != nil {
				require.ErrorIs(t, err, kv.ErrCorrupt, kind.Name)
				require.ErrorContains(t, err, "file")
				continue
			}
			require.NotZero(t, version, kind.Name)
		}
	})
}
