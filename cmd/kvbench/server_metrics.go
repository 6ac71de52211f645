package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// meteredTarget is a client of a server whose metrics can be read.
type meteredTarget struct {
	storeTarget
	page   metricsPage
	now    metrics // as of the last second; nil if the page could not be read
	before metrics // as of the beginning of the measurement
}

// openMetered is openClient with the metrics of the server. It returns an error if these cannot
// be read.
func openMetered(client *storeTarget, admin string) (*meteredTarget, error) {
	t := &meteredTarget{page: newMetricsPage(admin)}
	t.store = client.store
	if _, err := t.ServerTime(); err != nil {
		t.page.client.CloseIdleConnections()
		return nil, fmt.Errorf("%w: name the address that kvd serve prints as admin=, or leave out --admin", err)
	}
	return t, nil
}

func (t *meteredTarget) Close() error {
	t.page.client.CloseIdleConnections()
	return t.storeTarget.Close()
}

// ServerTime implements workload.Remote. It reads the page, on which begin, state and activity
// rely until it is called again.
func (t *meteredTarget) ServerTime() (loadgen.ServerTime, error) {
	var err error
	if t.now, err = t.page.read(); err != nil {
		return loadgen.ServerTime{}, err
	}
	used, known := t.now["process_cpu_seconds_total"] // 0 until the first hundredth
	cores := t.now["go_sched_gomaxprocs_threads"]
	if !known || cores == 0 {
		t.now = nil
		return loadgen.ServerTime{}, fmt.Errorf("%s does not tell the processor time of the server", t.page.url)
	}
	return loadgen.ServerTime{Used: time.Duration(used * float64(time.Second)), Processors: cores}, nil
}

// begin implements staged.
func (t *meteredTarget) begin() {
	t.storeTarget.begin()
	t.before = t.now
}

// since returns by how much a counter has grown since the measurement began.
func (t *meteredTarget) since(name string) uint64 { return uint64(max(t.now[name]-t.before[name], 0)) }

// activity implements active.
func (t *meteredTarget) activity() *activity {
	if t.now == nil || t.before == nil {
		return nil
	}
	a := &activity{
		OpsPerWriteBatch:   quotient(t.since("kvd_batch_ops_sum"), t.since("kvd_batch_ops_count")),
		OpsPerReadBatch:    quotient(t.since("kvd_read_batch_ops_sum"), t.since("kvd_read_batch_ops_count")),
		RecordsPerLogWrite: quotient(t.since("kvd_wal_records_total"), t.since("kvd_wal_groups_total")),
		LogSyncs:           t.since("kvd_wal_sync_duration_seconds_count"),
		LogBytes:           t.since("kvd_wal_written_bytes_total"),
		FlushedBytes:       t.since("kvd_flush_written_bytes_total"),
		CompactedBytes:     t.since("kvd_compaction_written_bytes_total"),
		MovedBytes:         t.since("kvd_values_moved_bytes_total"),
		ValueFileBytes:     uint64(t.now["kvd_level_bytes values"]),
		GarbageBytes:       uint64(t.now["kvd_value_garbage_bytes"]),
		DiskUnknown:        true,
		WriteBatches:       t.sizes("kvd_batch_ops_bucket"),
		ReadBatches:        t.sizes("kvd_read_batch_ops_bucket"),
	}
	a.WrittenPerUserBytes = quotient(a.LogBytes+a.FlushedBytes+a.CompactedBytes, t.since("kvd_user_written_bytes_total"))
	return a
}

// sizes returns how many micro-batches had which size, in the form of results.Activity.
func (t *meteredTarget) sizes(histogram string) [][2]uint64 {
	var sizes [][2]uint64
	for name := range t.now {
		bound, ok := strings.CutPrefix(name, histogram+" ")
		if n, err := strconv.ParseFloat(bound, 64); ok && err == nil && n >= 1 && !math.IsInf(n, 1) {
			sizes = append(sizes, [2]uint64{uint64(n), t.since(name)})
		}
	}
	slices.SortFunc(sizes, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	for i := len(sizes) - 1; i > 0; i-- { // each contains those before it
		sizes[i][1] -= min(sizes[i-1][1], sizes[i][1])
	}
	return slices.DeleteFunc(sizes, func(s [2]uint64) bool { return s[1] == 0 })
}

// state implements describing.
func (t *meteredTarget) state() *results.StoreState {
	if t.now == nil || t.before == nil {
		return nil
	}
	is := func(name string) uint64 { return uint64(max(t.now[name], 0)) }
	return &results.StoreState{
		Log: is("kvd_wal_bytes"), Deltas: is("kvd_level_bytes delta"), Base: is("kvd_level_bytes base"), Values: is("kvd_level_bytes values"),
		Garbage: is("kvd_value_garbage_bytes"), Debt: is("kvd_compaction_debt_bytes"), Pressure: t.now["kvd_write_pressure_ratio"],
		Put:     t.since("kvd_user_written_bytes_total"),
		Written: t.since("kvd_wal_written_bytes_total") + t.since("kvd_flush_written_bytes_total") + t.since("kvd_compaction_written_bytes_total"),
	}
}

// metrics are the figures of a server by their names: the sum over all labels but level, whose value
// follows the name after a space, as does the upper bound of a bucket.
type metrics map[string]float64

// metricsPage is the page of a server with its metrics.
type metricsPage struct {
	client *http.Client
	url    string
}

// unixPrefix begins an address that is the name of a socket.
const unixPrefix = "unix:"

// metricsWait bounds how long a page may take. The seconds of a run end later while it is read.
const metricsWait = 5 * time.Second

// mostMetrics bounds the size of a page. With 1,024 partitions a server has some 4 MiB.
const mostMetrics = 64 << 20

// newMetricsPage returns the page at HOST:PORT or unix:PATH.
func newMetricsPage(admin string) metricsPage {
	network, address, host := "tcp", admin, admin
	if path, ok := strings.CutPrefix(admin, unixPrefix); ok {
		network, address, host = "unix", path, "unix"
	}
	var dialer net.Dialer
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
	}
	return metricsPage{&http.Client{Transport: transport, Timeout: metricsWait}, "http://" + host + "/metrics"}
}

// read returns the metrics as they are now.
func (p *metricsPage) read() (metrics, error) {
	response, err := p.client.Get(p.url)
	if err != nil {
		if strings.Contains(err.Error(), "malformed HTTP response") {
			err = fmt.Errorf("what answers %s does not speak HTTP", p.url)
		}
		return nil, fmt.Errorf("read the metrics of the server: %w", err)
	}
	m, err := metrics(nil), error(nil)
	if response.StatusCode == http.StatusOK {
		m, err = parseMetrics(io.LimitReader(response.Body, mostMetrics))
	} else {
		err = fmt.Errorf("%s answers %s", p.url, response.Status)
	}
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("read the metrics of the server: %w", err)
	}
	if _, ok := m["kvd_build_info"]; !ok {
		return nil, fmt.Errorf("read the metrics of the server: %s is no page of kvd", p.url)
	}
	return m, nil
}

// parseMetrics reads Prometheus' text format.
func parseMetrics(page io.Reader) (metrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, err
	}
	m := make(metrics)
	for _, family := range families {
		samples, err := expfmt.ExtractSamples(new(expfmt.DecodeOptions), family)
		if err != nil {
			return nil, err
		}
		for _, sample := range samples {
			name := string(sample.Metric[model.MetricNameLabel])
			if label := cmp.Or(sample.Metric[model.BucketLabel], sample.Metric["level"]); label != "" {
				name += " " + string(label)
			}
			m[name] += float64(sample.Value)
		}
	}
	return m, nil
}
