package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
)

func TestNumbersReadWell(t *testing.T) {
	assert.Equal(t, []string{"0", "7", "999", "1,000", "12,345", "1,234,567"},
		[]string{grouped(0), grouped(7), grouped(999), grouped(1000), grouped(12345.4), grouped(1234567)})
	assert.Equal(t, []string{"0s", "850ns", "47.1µs", "4.91ms", "1.23s", "2m3s"},
		[]string{nanos(0), nanos(850), nanos(47_149), nanos(4_912_345), nanos(1_234_567_890), nanos(123_400_000_000)})
	assert.Equal(t, []string{"0 B", "1023 B", "1.0 KiB", "1.5 MiB", "16.0 GiB", "8.0 EiB"},
		[]string{bytesText(0), bytesText(1023), bytesText(1024), bytesText(3 << 19), bytesText(16 << 30), bytesText(1<<63 - 1)})
	assert.Equal(t, "▁▄█", sparkline([]float64{0, 50, 100}))
	assert.Equal(t, "▁▁", sparkline([]float64{0, 0}))
}

func TestSizesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "17": 17, "4KiB": 4096, "256MiB": 256 << 20, "2GiB": 2 << 30} {
		var b byteSize
		require.NoError(t, b.Set(text))
		assert.EqualValues(t, want, b)
		assert.Equal(t, text, b.String())
	}
	for _, text := range []string{"", "KiB", "-1", "1.5GiB", "1MB", "9223372036854775808", "8589934592GiB"} {
		var b byteSize
		assert.Error(t, b.Set(text), text)
	}
	var b byteSize
	require.NoError(t, b.Set("2048"))
	assert.Equal(t, "2KiB", b.String())
}

func TestATerminalSeesOneLineThatIsRedrawn(t *testing.T) {
	var out bytes.Buffer
	v := &liveView{out: &out, terminal: true}
	v.second(loadgen.Sample{NanoTime: 1e9, OpsPerSecond: 1000})
	v.second(loadgen.Sample{NanoTime: 2e9, OpsPerSecond: 500})
	assert.NotContains(t, out.String(), "\n")
	assert.Contains(t, out.String(), "\r\x1b[K")
	assert.Contains(t, out.String(), "█▄")
	v.end()
	v.end()
	assert.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
}

// TestProgressIsQuietForTwoSeconds: then there is a line every five seconds, and one at the end.
func TestProgressIsQuietForTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		counted := loadgen.Counted("preload", "keys", newLiveView(&out).progress)
		for done := range uint64(9) {
			counted(1000*done, 8000)
			time.Sleep(time.Second)
		}
		assert.Equal(t, "preload  25 % of 8,000 keys, 1,000 a second, 6s left\n"+
			"preload  87 % of 8,000 keys, 1,000 a second, 1s left\n"+
			"preload  100 % of 8,000 keys, 1,000 a second, 0s left\n", out.String())
		out.Reset()
		require.NoError(t, loadgen.Watch("merging", newLiveView(&out).progress, func() error {
			time.Sleep(8500 * time.Millisecond)
			return nil
		}))
		assert.Equal(t, "merging  2s\nmerging  7s\n", out.String())
	})
}

// TestATerminalSeesProgressInOneLine: each second, and no more than it has columns for.
func TestATerminalSeesProgressInOneLine(t *testing.T) {
	var out bytes.Buffer
	v := &liveView{out: &out, terminal: true, columns: func() int { return 21 }}
	v.progress(loadgen.Progress{What: "warming up", Things: "ms", Done: 2000, Total: 8000, Elapsed: 2 * time.Second})
	v.progress(loadgen.Progress{What: "warming up", Things: "ms", Done: 3000, Total: 8000, Elapsed: 3 * time.Second})
	assert.Equal(t, "\r\x1b[Kwarming up  25 % of \r\x1b[Kwarming up  38 % of ", out.String())
	v.columns = nil
	out.Reset()
	v.progress(loadgen.Progress{What: "warming up", Things: "ms", Done: 2000, Total: 8000, Elapsed: 2 * time.Second})
	assert.Equal(t, "\r\x1b[Kwarming up  25 % of 8s, 6s left", out.String())
}
