package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// sampleSlowLog has what is hard to print.
func sampleSlowLog() *kvd.SlowLog {
	at := time.Date(2026, 11, 22, 6, 20, 30, 123_456_000, time.Local)
	const ms, us = time.Millisecond, time.Microsecond
	return &kvd.SlowLog{Threshold: 10 * ms, Total: 1234, Requests: []kvd.SlowRequest{
		{
			ID: 1234, At: at, Method: "Pipeline.Put", Code: "OK", Peer: "127.0.0.1:40506", KeyPrefix: []byte("user/1"), KeyBytes: 6, Ops: 64, Bytes: 9216,
			Timings: kvd.Timings{Gate: 3 * us, Inbox: 1250 * us, Batch: 40 * us, Engine: 30 * us, LogWrite: 900 * us, Sync: 12_345_678, Reply: 5 * us},
		},
		{
			ID: 1233, At: at.Add(-time.Hour), Method: "Get", Code: "ResourceExhausted", Peer: "@", KeyPrefix: []byte("bin\x00\xff\t"), KeyBytes: 50, Ops: 1, Bytes: 50,
			Timings: kvd.Timings{Gate: 100 * ms},
		},
		{
			ID: 1232, At: at.Add(-2 * time.Hour), Method: "Commit", Code: "OK", KeyBytes: 11, Ops: 3, Bytes: 40,
			Timings: kvd.Timings{Reply: 10 * ms},
		},
	}}
}

func TestSlowLogLooksAsItShould(t *testing.T) {
	for name, write := range map[string]func(w *strings.Builder) error{
		"slowlog.txt":   func(w *strings.Builder) error { return writeSlowTable(w, sampleSlowLog()) },
		"slowlog.jsonl": func(w *strings.Builder) error { return writeSlowJSON(w, inUTC(sampleSlowLog())) },
	} {
		var out strings.Builder
		require.NoError(t, write(&out))
		want, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		assert.Equal(t, string(want), out.String(), name)
	}
	var out strings.Builder
	require.NoError(t, writeSlowTable(&out, &kvd.SlowLog{Threshold: time.Second}))
	assert.Equal(t, "requests of 1s or longer since the server started: 0\n", out.String())
	out.Reset()
	require.NoError(t, writeSlowTable(&out, new(kvd.SlowLog)))
	assert.Equal(t, "the server keeps no slow log; it would with --slow-log-time\n", out.String())
}

// inUTC makes the times of a log those that the same clock shows there.
func inUTC(log *kvd.SlowLog) *kvd.SlowLog {
	for i := range log.Requests {
		at := &log.Requests[i].At
		_, offset := at.Zone()
		*at = at.Add(time.Duration(offset) * time.Second).UTC()
	}
	return log
}

func TestSlowlog(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev", "--slow-log-time", "1ns", "--slow-log-entries", "3")
	assert.Contains(t, p.must("slowlog"), "server started: 0\n")
	for i, key := range []string{"a", "b", "c", "d"} {
		p.must("put", key, "secret")
		// A frame is in the log some time after it was answered, and then before the next one.
		testwait.Until(t, func() bool { return strings.Contains(p.must("slowlog"), fmt.Sprintf("started: %d\n", i+1)) })
	}
	lines := strings.Split(strings.TrimSpace(p.must("slowlog")), "\n")
	require.Len(t, lines, 2+3)
	for i, line := range lines[2:] {
		assert.Regexp(t, regexp.MustCompile(`^`+string("432"[i])+` .* Pipeline\.Put +1 +7 +`+string("dcb"[i])+` +OK +127\.0\.0\.1:\d+$`), line)
	}
	var newest slowJSON
	require.NoError(t, json.Unmarshal([]byte(p.must("slowlog", "-o", "json", "--limit", "1")), &newest))
	assert.EqualValues(t, 4, newest.ID)
	assert.Equal(t, "d", *newest.Key)
	assert.Contains(t, newest.Stages, "log_write")
	assert.NotContains(t, p.must("slowlog")+p.must("slowlog", "-o", "json"), "secret")

	assert.Empty(t, p.must("slowlog", "--reset"))
	assert.Equal(t, "requests of 1ns or longer since the server started: 4\n", p.must("slowlog"))
	assert.Empty(t, p.must("slowlog", "-o", "json"))
}

func TestSlowlogWithoutKeysAndWithout(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev", "--slow-log-time", "1ns", "--slow-log-hide-keys")
	p.must("put", "hidden/key", "v")
	testwait.Until(t, func() bool { return strings.Contains(p.must("slowlog"), "started: 1\n") })
	out := p.must("slowlog") + p.must("slowlog", "-o", "json")
	assert.Contains(t, out, "(10 bytes)")
	assert.NotContains(t, out, "hidden")

	p = serve(t, t.TempDir(), "--dev", "--slow-log-time", "0")
	p.must("put", "k", "v")
	assert.Contains(t, p.must("slowlog"), "keeps no slow log")
	assert.Empty(t, p.must("slowlog", "-o", "json"))
}

func TestTimingsOfACommand(t *testing.T) {
	p := serve(t, t.TempDir())
	r := p.kvd("put", "--timings", "k", "v")
	require.Zero(t, r.code, r.err)
	assert.Regexp(t, `^[\d.]+[mµ]?s: client_queue .*, network .*, inbox .*, log_write .*, sync .*\n$`, r.err)
	r = p.kvd("get", "--timings", "k")
	assert.Equal(t, "v", r.out)
	assert.Regexp(t, `^[\d.]+[mµ]?s: client_queue .*, network .*, engine .*, return .*\n$`, r.err)
	assert.NotContains(t, r.err, "sync")
	r = p.kvd("get", "--timings", "absent")
	assert.Equal(t, exitNotFound, r.code)
	assert.Contains(t, r.err, "engine")
	assert.Contains(t, r.err, "not found")
	assert.Empty(t, p.kvd("get", "k").err)
}
