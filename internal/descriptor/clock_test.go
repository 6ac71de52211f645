package descriptor

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

var sampleClock = Clock{
	StoreID: sample.StoreID, Bound: 1_790_000_000_123,
	Boot: [16]byte{0xb0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Since: 3_600_000_000_001,
	Time: 1_789_999_990_123_456, Wall: 1_789_999_990_123_400,
}

func TestClockFileIsWhatFormatTwoWrote(t *testing.T) {
	golden, err := os.ReadFile("testdata/v2/CLOCK")
	require.NoError(t, err)
	require.Equal(t, golden, sampleClock.Encode())
	c, err := DecodeClock("CLOCK", golden)
	require.NoError(t, err)
	assert.Equal(t, sampleClock, c)
}

func TestClockFileOfFormatOneIsRead(t *testing.T) {
	golden, err := os.ReadFile("testdata/v1/CLOCK")
	require.NoError(t, err)
	c, err := DecodeClock("CLOCK", golden)
	require.NoError(t, err)
	assert.Equal(t, Clock{StoreID: sample.StoreID, Bound: 1_790_000_000_123}, c)
	for i := range golden {
		_, err := DecodeClock("CLOCK", golden[:i])
		require.ErrorIs(t, err, kv.ErrCorrupt, "%d bytes", i)
	}
}

func TestATimeSinceNoBootIsDamage(t *testing.T) {
	c := sampleClock
	c.Boot = [16]byte{}
	_, err := DecodeClock("CLOCK", c.Encode())
	require.ErrorIs(t, err, kv.ErrCorrupt)
	c.Since, c.Time, c.Wall = 0, 0, 0
	_, err = DecodeClock("CLOCK", c.Encode())
	require.NoError(t, err, "of a machine without names of boots")
	c = sampleClock
	c.Wall = 1 << 63
	_, err = DecodeClock("CLOCK", c.Encode())
	require.ErrorIs(t, err, kv.ErrCorrupt)
}

func TestReadFindsTheClockOfItsStoreAlone(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data"))
	_, err := ReadClock(fsys, "data", sample.StoreID)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, vfs.WriteAtomic(fsys, ClockPath("data"), sampleClock.Encode()))
	c, err := ReadClock(fsys, "data", sample.StoreID)
	require.NoError(t, err)
	assert.Equal(t, sampleClock, c)

	_, err = ReadClock(fsys, "data", sample.StoreID+1)
	require.ErrorIs(t, err, kv.ErrCorrupt, "of another store")
	require.ErrorContains(t, err, "data/CLOCK")

	require.NoError(t, vfs.WriteAtomic(fsys, ClockPath("data"), append(sampleClock.Encode(), 0)))
	_, err = ReadClock(fsys, "data", sample.StoreID)
	require.ErrorIs(t, err, kv.ErrCorrupt, "a byte too many")
}

func TestEveryFlippedBitAndEveryCutOfTheClockIsDamageOrANewerVersion(t *testing.T) {
	whole := sampleClock.Encode()
	for i := range whole {
		for bit := range 8 {
			b := sampleClock.Encode()
			b[i] ^= 1 << bit
			_, err := DecodeClock("data/CLOCK", b)
			if i >= 8 && i < preambleBytes && !(i == 8 && bit == 1) { // the flip makes format 0
				require.ErrorIs(t, err, kv.ErrUnsupportedVersion, "byte %d", i)
				continue
			}
			require.ErrorIs(t, err, kv.ErrCorrupt, "byte %d bit %d", i, bit)
			require.ErrorContains(t, err, "data/CLOCK")
		}
		_, err := DecodeClock("CLOCK", whole[:i])
		require.ErrorIs(t, err, kv.ErrCorrupt, "%d bytes", i)
	}
}

func TestClockStandsAtATime(t *testing.T) {
	for _, bound := range []uint64{0, maxClockBound + 1, 1<<64 - 1} {
		b := (&Clock{StoreID: 1, Bound: bound}).Encode()
		_, err := DecodeClock("CLOCK", b)
		require.ErrorIs(t, err, kv.ErrCorrupt, "%d", bound)
	}
}

// FuzzDecodeClock: Encode writes exactly what DecodeClock accepts.
func FuzzDecodeClock(f *testing.F) {
	f.Add(sampleClock.Encode())
	f.Add([]byte(clockMagic))
	f.Add((&Clock{}).Encode())
	old, err := os.ReadFile("testdata/v1/CLOCK")
	require.NoError(f, err)
	f.Add(old)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeClock("CLOCK", b)
		if err != nil {
			return
		}
		if b[8] == 1 { // the old format
			again, err := DecodeClock("CLOCK", c.Encode())
			require.NoError(t, err)
			require.Equal(t, c, again)
			return
		}
		require.Equal(t, b, c.Encode())
	})
}
