package descriptor

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

var sample = Descriptor{StoreID: 0x0123456789abcdef, Partitions: 16, Hash: keyhash.Name}

func TestStoreFileIsWhatFormatOneWrote(t *testing.T) {
	golden, err := os.ReadFile("testdata/v1/STORE")
	require.NoError(t, err)
	require.Equal(t, golden, sample.Encode())
	d, err := Decode("STORE", golden)
	require.NoError(t, err)
	assert.Equal(t, sample, d)
}

func TestReadFindsStoreInTheDirectory(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data"))
	_, err := Read(fsys, "data")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, vfs.WriteAtomic(fsys, Path("data"), sample.Encode()))
	d, err := Read(fsys, "data")
	require.NoError(t, err)
	assert.Equal(t, sample, d)

	require.NoError(t, vfs.WriteAtomic(fsys, Path("data"), append(sample.Encode(), 0)))
	_, err = Read(fsys, "data")
	require.ErrorIs(t, err, kv.ErrCorrupt, "a byte too many")
}

func TestEveryFlippedBitAndEveryCutIsDamageOrANewerVersion(t *testing.T) {
	whole := sample.Encode()
	for i := range whole {
		for bit := range 8 {
			b := sample.Encode()
			b[i] ^= 1 << bit
			_, err := Decode("data/STORE", b)
			if i >= 8 && i < preambleBytes && !(i == 8 && bit == 0) { // the flip makes format 0
				require.ErrorIs(t, err, kv.ErrUnsupportedVersion, "byte %d", i)
				continue
			}
			require.ErrorIs(t, err, kv.ErrCorrupt, "byte %d bit %d", i, bit)
			require.ErrorContains(t, err, "data/STORE")
		}
		_, err := Decode("STORE", whole[:i])
		require.ErrorIs(t, err, kv.ErrCorrupt, "%d bytes", i)
	}
}

func TestAnotherHashIsUnsupportedNotDamage(t *testing.T) {
	b := sample.Encode()
	copy(b[24:], "murmur3\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	reseal(b)
	_, err := Decode("STORE", b)
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	require.NotErrorIs(t, err, kv.ErrCorrupt)
}

func TestPartitionCountIsBounded(t *testing.T) {
	for _, n := range []uint32{0, MaxPartitions + 1, 1<<32 - 1} {
		b := sample.Encode()
		binary.LittleEndian.PutUint32(b[20:], n)
		reseal(b)
		_, err := Decode("STORE", b)
		require.ErrorIs(t, err, kv.ErrCorrupt, "%d partitions", n)
	}
}

func TestPartitionNamesComeBack(t *testing.T) {
	for _, id := range []int{0, 7, 9999, 10000} {
		got, ok := ParsePartition(partitionName(id))
		require.True(t, ok)
		require.Equal(t, id, got)
	}
	for _, name := range []string{"", "p-", "p-1", "p-00001", "p-+001", "p--001", "q-0001", "p-000x"} {
		_, ok := ParsePartition(name)
		require.False(t, ok, name)
	}
}

// FuzzDecode: Encode writes exactly what Decode accepts.
func FuzzDecode(f *testing.F) {
	f.Add(sample.Encode())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Decode("STORE", b)
		if err == nil {
			require.Equal(t, b, d.Encode())
		}
	})
}

func reseal(b []byte) {
	binary.LittleEndian.PutUint32(b[sizeBytes-4:], crc32.Checksum(b[:sizeBytes-4], castagnoli))
}

func TestForeignFiles(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"empty":             {nil, ""},
		"something else":    {[]string{"wal/x", "cat.jpg"}, "cat.jpg"},
		"like a partition":  {[]string{"p-00001/x"}, "p-00001"},
		"creation cut off":  {[]string{"LOCK", "CLOCK", "STORE.tmp", "BALLAST", "wal/x", "p-0000/x"}, ""},
		"a new file system": {[]string{"lost+found/x"}, ""},
		"a store":           {[]string{"STORE", "cat.jpg"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			require.NoError(t, fsys.MkdirAll("data"))
			for _, file := range c.files {
				file = path.Join("data", file)
				require.NoError(t, fsys.MkdirAll(path.Dir(file)))
				f, err := fsys.Create(file)
				require.NoError(t, err)
				require.NoError(t, f.Close())
			}
			foreign, err := Foreign(fsys, "data")
			require.NoError(t, err)
			assert.Equal(t, c.want, foreign)
		})
	}
	_, err := Foreign(vfs.NewMem(), "missing")
	require.ErrorIs(t, err, fs.ErrNotExist)

	broken := errors.New("broken")
	disk := faultfs.Wrap(vfs.NewMem(), faultfs.FailAt(0, broken, false, faultfs.OnKind(faultfs.List)))
	_, err = Foreign(disk, "data")
	require.ErrorIs(t, err, broken)
}
