package results

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/histogram"
)

// bucketsOf returns the counts of a line's histogram by their index. It follows the encoding
// and nothing else; bench/conformance reads the same file by HdrHistogram's own library.
func bucketsOf(t *testing.T, line string) map[int]int64 {
	t.Helper()
	encoded, err := base64.StdEncoding.DecodeString(line[strings.LastIndexByte(line, ',')+1:])
	require.NoError(t, err)
	require.EqualValues(t, 0x1c849314, binary.BigEndian.Uint32(encoded))
	require.Len(t, encoded[8:], int(binary.BigEndian.Uint32(encoded[4:])))
	z, err := zlib.NewReader(bytes.NewReader(encoded[8:]))
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	require.EqualValues(t, 0x1c849313, binary.BigEndian.Uint32(plain))
	payload := plain[40:]
	require.Len(t, payload, int(binary.BigEndian.Uint32(plain[4:])))
	counts, index := make(map[int]int64), 0
	for len(payload) > 0 {
		v, n := binary.Varint(payload)
		require.Positive(t, n)
		payload = payload[n:]
		switch {
		case v < 0:
			index += int(-v)
			continue
		case v > 0:
			counts[index] = v
		}
		index++
	}
	return counts
}

// countsOf adds up the histograms of all lines of a log by their tags.
func countsOf(t *testing.T, log string) (counts map[string]map[int]int64, lines int) {
	t.Helper()
	counts = make(map[string]map[int]int64)
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "Tag=") {
			continue
		}
		lines++
		tag, _, _ := strings.Cut(strings.TrimPrefix(line, "Tag="), ",")
		if counts[tag] == nil {
			counts[tag] = make(map[int]int64)
		}
		for i, n := range bucketsOf(t, strings.TrimSpace(line)) {
			counts[tag][i] += n
		}
	}
	return counts, lines
}

func TestALogHasEveryOperationOnce(t *testing.T) {
	r := measured(t)
	run := r.Cells[0].MedianRun()
	log := string(hdrLog(r, r.Cells[0], run))
	assert.Contains(t, log, "#[Histogram log format version 1.3]\n#[StartTime: 1767323045.000 (seconds since epoch), 2026-01-02T03:04:05Z]\n")
	assert.Regexp(t, `\nTag=put,1\.000,1\.000,\d+\.\d\d\d,HIST`, log)
	counts, lines := countsOf(t, log)
	assert.Equal(t, 3*2, lines, "a line for each second and operation")
	for _, l := range run.Latencies {
		want := make(map[int]int64)
		for _, b := range l.Buckets {
			want[hdrIndex(b[0])] += int64(b[1])
		}
		assert.Equal(t, want, counts[l.Operation], l.Operation)
	}
}

// TestTheBucketsOfALogAreThoseOfTheHistogram: else the encoding would have to round.
func TestTheBucketsOfALogAreThoseOfTheHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		v := time.Duration(rng.Uint64() >> (22 + rng.UintN(42)))
		h, s := new(histogram.Histogram), new(histogram.Snapshot)
		h.Record(v)
		s.Add(h)
		s.Each(func(low, high time.Duration, _ uint64) {
			assert.Equal(t, hdrIndex(uint64(low)), hdrIndex(uint64(high)))
			assert.NotEqual(t, hdrIndex(uint64(max(low, 1)-1)), hdrIndex(uint64(max(low, 1))), "%d begins a bucket", low)
		})
	}
	assert.Equal(t, hdrIndex(hdrMost), hdrIndex(1<<60), "longer than the longest")
}

func TestALogOfALongRunHasFewIntervals(t *testing.T) {
	var v intervals
	const seconds = 3600
	for n := range seconds {
		v.add(interval{float64(n), float64(n + 1), []Latencies{{Operation: "get", Buckets: [][2]uint64{{uint64(1000 + n), 1}}}}})
	}
	log := string(v.lines())
	counts, lines := countsOf(t, log)
	assert.LessOrEqual(t, lines, mostIntervals)
	assert.Greater(t, lines, mostIntervals/2)
	total := int64(0)
	for _, n := range counts["get"] {
		total += n
	}
	assert.EqualValues(t, seconds, total)
	at := 0.0
	for i := range v.list {
		assert.Equal(t, at, v.list[i].from, "intervals leave no gap")
		at = v.list[i].to
	}
	assert.EqualValues(t, seconds, at)
}
