package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/results"
)

// meteredServer serves a store in this process, and its admin pages, at the addresses that it
// returns.
func meteredServer(t *testing.T) (address, pages string) {
	t.Helper()
	target, info, err := openTarget(&targetOptions{server: true, data: t.TempDir(), partitions: 2, level: kv.DurabilityBuffered})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, target.Close()) })
	s := httptest.NewServer(admin.Handler(&admin.Source{
		Store:     func() (engine.Stats, bool) { return target.(*serverTarget).engine.engine.Stats(), true },
		Member:    func() (admin.Member, bool) { return admin.Member{}, false },
		Traffic:   func() admin.Traffic { return admin.Traffic{} },
		Incidents: func() admin.Incidents { return admin.Incidents{} },
		Checks:    func() []admin.Check { return nil },
		Alive:     func() error { return nil },
	}, nil))
	t.Cleanup(s.Close)
	return info.Address, s.Listener.Addr().String()
}

// TestTheMetricsOfAServerTellWhatItDid: its processor time, apart from that of the client, and
// the work of its store.
func TestTheMetricsOfAServerTellWhatItDid(t *testing.T) {
	address, pages := meteredServer(t)
	ctx, open := endingAfter(t, 3000)
	code, stdout, stderr := benchUntil(t, ctx, open, "run", "--addr", address, "--admin", pages, "--threads", "4", "--keys", "1000",
		"--value-size", "100", "--mix", "BALANCED", "--duration", "1h", "--report", "r")
	require.Equal(t, exitOK, code, stderr)
	assert.Regexp(t, `(?m)^server       \d+\.\d us of CPU an operation, \d+\.\d % of its \d+ processors$`, stdout)
	assert.Regexp(t, `(?m)^store        \d+\.\d writes and \d+\.\d reads a micro-batch, `, stdout)
	r, err := results.Read("r")
	require.NoError(t, err)
	run := r.Cells[0].Runs[0]
	require.NotNil(t, run.Server)
	assert.Positive(t, run.Server.Processors)
	a := run.Counters()
	require.NotNil(t, a)
	batches, writes := uint64(0), run.Operation("put").Count+run.Operation("delete").Count
	for _, size := range a.WriteBatches {
		batches += size[1]
	}
	assert.InEpsilon(t, writes, a.OpsPerWriteBatch*float64(batches), 0.05, "those under way at the end are not counted")
	assert.Positive(t, a.LogBytes)
	assert.Positive(t, a.WrittenPerUserBytes)
	require.NotNil(t, run.Series[0].Store)
	assert.Positive(t, run.Series[0].Store.Log)
	page, err := os.ReadFile(filepath.Join("r", results.ReportFile))
	require.NoError(t, err)
	assert.Contains(t, string(page), "CPU time of an operation, in the server")
	assert.NotContains(t, string(page), "read from the disk, written to it", "which only the server knows")
}

// TestAServerWhoseMetricsAreNotReadHasNoProcessorTime: the report says so.
func TestAServerWhoseMetricsAreNotReadHasNoProcessorTime(t *testing.T) {
	ctx, open := endingAfter(t, 500)
	code, stdout, stderr := benchUntil(t, ctx, open, "run", "--addr", serve(t), "--threads", "2", "--keys", "100", "--duration", "1h", "--report", "r")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "server       CPU time not known: name its admin address by --admin\n")
	page, err := os.ReadFile(filepath.Join("r", results.ReportFile))
	require.NoError(t, err)
	assert.Contains(t, string(page), "not known: pass --admin")
}

// TestMetricsThatCannotBeReadAreAnError: before the measurement. If they end during it, it goes on.
func TestMetricsThatCannotBeReadAreAnError(t *testing.T) {
	var answer atomic.Pointer[string]
	asked := new(atomic.Int64)
	const good = "kvd_build_info{version=\"1\"} 1\nprocess_cpu_seconds_total 0\ngo_sched_gomaxprocs_threads 2\n"
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := *answer.Load()
		if status, ok := strings.CutPrefix(text, "status "); ok {
			w.WriteHeader(http.StatusUnauthorized)
			text = status
		}
		if asked.Add(1) > 2 && text == good {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(pages.Close)
	line := []string{"run", "--addr", serve(t), "--admin", pages.Listener.Addr().String(), "--threads", "2", "--keys", "100", "--duration", "1h"}
	for text, says := range map[string]string{
		"status sign in\n":                        "/metrics answers 401 Unauthorized",
		"up 1\n":                                  "/metrics is no page of kvd",
		"kvd_build_info{version=\"1\"} 1\n":       "does not tell the processor time of the server",
		"kvd_build_info{version=\"1\"} 1\nup x\n": "text format parsing error in line 2",
		strings.Repeat("x", 1<<17):                "text format parsing error in line 1",
	} {
		answer.Store(&text)
		code, _, stderr := bench(t, openTarget, line...)
		assert.Equal(t, exitError, code)
		assert.Contains(t, stderr, says)
		assert.Contains(t, stderr, "or leave out --admin")
	}
	text := good
	answer.Store(&text)
	asked.Store(0)
	ctx, open := endingAfter(t, 500)
	code, stdout, stderr := benchUntil(t, ctx, open, line...)
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "server       CPU time not known: read the metrics of the server: ")
	assert.NotContains(t, stdout, "micro-batch")

	line[4] = "unix:nothing.sock"
	code, _, stderr = bench(t, openTarget, line...)
	assert.Equal(t, exitError, code)
	assert.Contains(t, stderr, "nothing.sock")
	line[4], _ = meteredServer(t) // its address for clients
	code, _, stderr = bench(t, openTarget, line...)
	assert.Equal(t, exitError, code)
	assert.Contains(t, stderr, "does not speak HTTP")
	refuses(t, "run", map[string][]string{
		"--admin has no effect without --addr":     {"--admin", "127.0.0.1:1"},
		"missing port in address: want HOST:PORT":  {"--addr", ":1", "--admin", "7071"},
		"too many colons in address: want HOST:PO": {"--addr", ":1", "--admin", "http://127.0.0.1:7071"},
	})
}

func TestMetricsAreSumsByNameAndLevel(t *testing.T) {
	m, err := parseMetrics(strings.NewReader(`# HELP kvd_level_bytes Bytes 12
kvd_level_bytes{level="base",partition="0"} 5
kvd_level_bytes{level="base",partition="1"} 7
kvd_level_bytes{level="delta",partition="1"} 1.5e+03
# TYPE kvd_batch_ops histogram
kvd_batch_ops_bucket{partition="0",le="1"} 4
kvd_batch_ops_bucket{partition="0",le="+Inf"} 5
kvd_batch_ops_sum{partition="0"} 20
kvd_batch_ops_count{partition="0"} 5
kvd_batch_ops_bucket{partition="1",le="1"} 3
kvd_batch_ops_bucket{partition="1",le="+Inf"} 4
kvd_batch_ops_sum{partition="1"} 30
kvd_batch_ops_count{partition="1"} 4
# TYPE kvd_writes_total counter
kvd_writes_total{file="a=\"b\" 1"} 3
# TYPE kvd_up gauge
kvd_up 1
`))
	require.NoError(t, err)
	assert.Equal(t, metrics{
		"kvd_level_bytes base": 12, "kvd_level_bytes delta": 1500, "kvd_batch_ops_bucket 1": 7, "kvd_batch_ops_bucket +Inf": 9,
		"kvd_batch_ops_sum": 50, "kvd_batch_ops_count": 9, "kvd_writes_total": 3, "kvd_up": 1,
	}, m)
}

func TestSizesOfMicroBatchesAreDifferencesOfBuckets(t *testing.T) {
	target := &meteredTarget{
		before: metrics{"b 1": 10, "b 2": 10, "b 4": 10, "b +Inf": 10},
		now:    metrics{"b 1": 13, "b 2": 13, "b 4": 18, "b 16": 9, "b +Inf": 20},
	}
	assert.Equal(t, [][2]uint64{{1, 3}, {4, 5}, {16, 1}}, target.sizes("b"))
	target.now = nil
	assert.Nil(t, target.activity())
	assert.Nil(t, target.state())
}
