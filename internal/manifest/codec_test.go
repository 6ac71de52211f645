package manifest

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

var update = flag.Bool("update", false, "write the golden files again")

func TestGoldenFiles(t *testing.T) {
	empty := &Version{Num: 1, Partition: 3, NextFile: 1001}
	for name, want := range map[string][]byte{
		"MANIFEST-000040": appendManifest(nil, example()),
		"MANIFEST-000001": appendManifest(nil, empty),
		"CURRENT":         encodeCurrent(3, 40),
	} {
		file := filepath.Join("testdata", "v1", name)
		if *update {
			require.NoError(t, os.WriteFile(file, want, 0o644))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, want, got, "the format changed: %s", name)
	}
	file := filepath.Join("testdata", "v2", "MANIFEST-000040")
	if *update {
		require.NoError(t, os.WriteFile(file, appendManifest(nil, withValues()), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, appendManifest(nil, withValues()), got, "the format changed: %s", file)
	v, err := DecodeManifest("m", got)
	require.NoError(t, err)
	assert.Equal(t, withValues(), v)
	for name, want := range map[string]*Version{"MANIFEST-000040": withPosition(withValues()), "MANIFEST-000040-plain": withPosition(example())} {
		file := filepath.Join("testdata", "v3", name)
		if *update {
			require.NoError(t, os.WriteFile(file, appendManifest(nil, want), 0o644))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, appendManifest(nil, want), got, "the format changed: %s", file)
		v, err := DecodeManifest("m", got)
		require.NoError(t, err)
		assert.Equal(t, want, v)
	}
	v, err = DecodeManifest("m", appendManifest(nil, example()))
	require.NoError(t, err)
	assert.Equal(t, example(), v)
	v, err = DecodeManifest("m", appendManifest(nil, empty))
	require.NoError(t, err)
	assert.Equal(t, empty, v)
	partition, num, err := DecodeCurrent("c", encodeCurrent(3, 40))
	require.NoError(t, err)
	assert.Equal(t, uint32(3), partition)
	assert.Equal(t, kv.FileNum(40), num)
	assert.Equal(t, "kvd-current 1 partition 3 MANIFEST-000040 ", string(encodeCurrent(3, 40)[:42]))
}

// withPosition adds a place in a replicated log.
func withPosition(v *Version) *Version {
	v.Position = []byte("position")
	return v
}

func TestANewerFormatIsNotDamage(t *testing.T) {
	data := appendManifest(nil, example())
	binary.LittleEndian.PutUint32(data[8:], manifestFormat+1)
	_, err := DecodeManifest("m", data)
	require.ErrorIs(t, err, kv.ErrCorrupt, "a flipped bit is no newer format")
	binary.LittleEndian.PutUint32(data[12:], checksum(data[:12]))
	_, err = DecodeManifest("m", data[:20])
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	require.NotErrorIs(t, err, kv.ErrCorrupt)

	_, _, err = DecodeCurrent("c", sealLine("kvd-current 2 what ever comes "))
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	require.NotErrorIs(t, err, kv.ErrCorrupt)
}

// sealLine makes a line of CURRENT with a valid checksum.
func sealLine(line string) []byte {
	const digits = "0123456789abcdef"
	sum := checksum([]byte(line))
	data := []byte(line)
	for shift := 28; shift >= 0; shift -= 4 {
		data = append(data, digits[sum>>shift&15])
	}
	return append(data, '\n')
}

func TestCurrentWithARightChecksumMustStillBeOurs(t *testing.T) {
	require.Equal(t, encodeCurrent(3, 40), sealLine("kvd-current 1 partition 3 MANIFEST-000040 "))
	for _, line := range []string{
		"", "kvd-current ", "some-current 1 partition 3 MANIFEST-000040 ", "kvd-current 1 ",
		"kvd-current 1 partition 03 MANIFEST-000040 ", "kvd-current 1 partition -3 MANIFEST-000040 ",
		"kvd-current 1 partition 4294967296 MANIFEST-000040 ", "kvd-current 1 shard 3 MANIFEST-000040 ",
		"kvd-current 1 partition 3 000040.sst ", "kvd-current 1 partition 3 MANIFEST-40 ",
		"kvd-current 1 partition 3 ../MANIFEST-000040 ", "kvd-current 1 partition 3 MANIFEST-000040  ",
	} {
		_, _, err := DecodeCurrent("c", sealLine(line))
		require.ErrorIs(t, err, kv.ErrCorrupt, "%q", line)
	}
}

// seal makes a manifest of a body, with valid checksums.
func seal(body []byte) []byte { return sealAs(example(), body) }

// sealAs is seal with the header of a Version's manifest.
func sealAs(v *Version, body []byte) []byte {
	data := appendManifest(nil, v)[:headerBytes]
	binary.LittleEndian.PutUint64(data[28:], uint64(len(body)))
	data = append(data, body...)
	return binary.LittleEndian.AppendUint32(data, checksum(data))
}

func TestManifestWithARightChecksumMustStillMakeSense(t *testing.T) {
	whole := appendBody(nil, example())
	_, err := DecodeManifest("m", seal(whole))
	require.NoError(t, err)
	for n := range whole {
		_, err := DecodeManifest("m", seal(whole[:n]))
		require.ErrorIs(t, err, kv.ErrCorrupt, "cut at %d", n)
	}
	values := appendBody(nil, withValues())
	_, err = DecodeManifest("m", sealAs(withValues(), values))
	require.NoError(t, err)
	for n := range values {
		_, err := DecodeManifest("m", sealAs(withValues(), values[:n]))
		require.ErrorIs(t, err, kv.ErrCorrupt, "cut at %d", n)
	}
	placed := appendBody(nil, withPosition(withValues()))
	for n := range placed {
		_, err := DecodeManifest("m", sealAs(withPosition(example()), placed[:n]))
		if n == len(whole)+len("\x08position") {
			require.NoError(t, err, "all but the value files")
			continue
		}
		require.ErrorIs(t, err, kv.ErrCorrupt, "cut at %d", n)
	}
	for name, position := range map[string][]byte{"empty": {0}, "longer than the rest": {3, 1, 2}, "too long": {0x81, 0x80, 4}} {
		_, err := DecodeManifest("m", sealAs(withPosition(example()), append(whole[:len(whole):len(whole)], position...)))
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
	}
	for name, values := range map[string][]byte{
		"no value files": {0}, "more value files than bytes": {0xff, 0xff, 0x7f}, "no table needs it": {1, 60, 99, 5, 50, 0, 0, 0, 0, 0, 0, 0, 0},
		"less than none": {1, 60, 99, 5, 50, 1, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "more refs than bytes": {1, 60, 99, 5, 50, 0x7f},
		"not there": {1, 60, 99, 5, 50, 1, 61, 1, 10, 0, 0, 0, 0, 0, 0, 0}, "more than it has": {1, 60, 99, 5, 50, 1, 60, 1, 51, 0, 0, 0, 0, 0, 0, 0},
	} {
		_, err := DecodeManifest("m", sealAs(withValues(), append(whole[:len(whole):len(whole)], values...)))
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
	}
	for name, body := range map[string][]byte{
		"bytes after the body":        append(whole[:len(whole):len(whole)], 0),
		"more deltas than bytes":      {100, 95, 90, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"more tables than bytes":      {100, 95, 90, 0, 0xff, 0xff, 0xff, 0x7f},
		"number not shortest":         {100, 95, 90, 0x80, 0, 0},
		"number too long":             {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"sequence number past 56 bit": append([]byte{100}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"key longer than any":         append([]byte{100, 95, 90, 0, 1, 5, 9, 9, 0, 1, 1}, 0xff, 0xff, 0xff, 1),
		"key past the end":            {100, 95, 90, 0, 1, 5, 9, 9, 0, 1, 1, 1, 'a', 9, 'b'},
		"manifest number not below":   {40, 95, 90, 0, 0},
	} {
		_, err := DecodeManifest("m", seal(body))
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
	}
	data := appendManifest(nil, example())
	binary.LittleEndian.PutUint64(data[28:], 1)
	binary.LittleEndian.PutUint32(data[len(data)-4:], checksum(data[:len(data)-4]))
	_, err = DecodeManifest("m", data)
	require.ErrorIs(t, err, kv.ErrCorrupt)
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add(appendManifest(nil, example()))
	f.Add(appendManifest(nil, withValues()))
	f.Add(appendBody(nil, withValues()))
	f.Add(appendManifest(nil, withPosition(withValues())))
	f.Add(appendBody(nil, withPosition(withValues())))
	f.Add(appendManifest(nil, &Version{Num: 1, NextFile: 2}))
	f.Add(seal([]byte{100, 95, 90, 0xff, 0xff, 0x03}))
	f.Add([]byte(manifestMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeManifest(t, data)
		decodeManifest(t, seal(data)) // with a valid checksum
		decodeManifest(t, sealAs(withValues(), data))
		decodeManifest(t, sealAs(withPosition(example()), data))
	})
}

func decodeManifest(t *testing.T, data []byte) {
	v, err := DecodeManifest("m", data)
	if err != nil {
		return
	}
	if err := v.check(); err != nil {
		t.Fatalf("accepted, but %v", err)
	}
	require.Equal(t, data, appendManifest(nil, v), "accepted bytes must be the ones that kvd writes")
}

func TestALengthAllocatesNoMoreThanItsBytesCanHold(t *testing.T) {
	padding := make([]byte, 10_000)
	for name, body := range map[string][]byte{
		"deltas":   append([]byte{100, 95, 90, 0xff, 0xff, 0xff, 0xff, 0x0f}, padding...),
		"tables":   append([]byte{100, 95, 90, 0, 0xff, 0xff, 0xff, 0x7f}, padding...),
		"most yet": append([]byte{100, 95, 90, 0, 0xe0, 0x07}, padding...),
	} {
		data := seal(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeManifest("m", data)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16*len(data)+64<<10), name)
	}
}

func FuzzDecodeCurrent(f *testing.F) {
	f.Add(encodeCurrent(3, 40))
	f.Add(sealLine("kvd-current 2 "))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, sealLine(string(data))} {
			partition, num, err := DecodeCurrent("c", data)
			if err == nil {
				require.Equal(t, string(data), string(encodeCurrent(partition, num)))
			}
		}
	})
}
