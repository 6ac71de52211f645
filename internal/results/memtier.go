package results

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// memtier returns a run in the shape of what memtier_benchmark writes with --json-out-file, so
// that programs which read that can read this: the rows that memtier has for gets and sets,
// with rates in operations a second and latencies in milliseconds. It has no hits and no bytes:
// a run does not know them by operation.
func memtier(r *Result, run *Run) []byte {
	stats := map[string]any{"Runtime": memtierRuntime(r, run)}
	for _, o := range run.Trial.Operations {
		row := memtierRow(o.Count, o.OpsPerSecond, o.MeanNanos, &o.Nanos)
		row["Time-Serie"] = memtierSeries(run, o.Name)
		stats[memtierName(o.Name)] = row
	}
	sum := 0.0
	for _, o := range run.Trial.Operations {
		sum += float64(o.MeanNanos) * float64(o.Count)
	}
	stats["Totals"] = memtierRow(run.Ops, run.OpsPerSecond, int64(sum/float64(max(run.Ops, 1))), &run.All)
	data, err := json.MarshalIndent(map[string]any{"configuration": map[string]any{"command": strings.Join(r.Command, " ")}, "ALL STATS": stats}, "", "\t")
	if err != nil {
		return []byte("{}\n") // a figure is no number
	}
	return append(data, '\n')
}

// memtierName returns the name of the row of an operation.
func memtierName(operation string) string {
	switch operation {
	case "get":
		return "Gets"
	case "put":
		return "Sets"
	case "":
		return "Others"
	}
	return strings.ToUpper(operation[:1]) + operation[1:] + "s"
}

func memtierRuntime(r *Result, run *Run) map[string]any {
	millis := int64(math.Round(1000 * run.Seconds))
	runtime := map[string]any{"Total duration": millis, "Time unit": "MILLISECONDS", "Interrupted": strconv.FormatBool(run.Interrupted)}
	if began, err := time.Parse(time.RFC3339, r.Began); err == nil {
		runtime["Start time"], runtime["Finish time"] = began.UnixMilli(), began.UnixMilli()+millis
	}
	return runtime
}

func memtierRow(count uint64, rate float64, meanNanos int64, l *loadgen.Latency) map[string]any {
	return map[string]any{
		"Count": count, "Ops/sec": rate, "Latency": millis(meanNanos), "Average Latency": millis(meanNanos), "Max Latency": millis(l.Max),
		"Percentile Latencies": memtierPercentiles(l),
	}
}

func memtierPercentiles(l *loadgen.Latency) map[string]any {
	return map[string]any{
		"p50.00": millis(l.P50), "p90.00": millis(l.P90), "p95.00": millis(l.P95), "p99.00": millis(l.P99), "p99.90": millis(l.P999), "p99.99": millis(l.P9999),
	}
}

// memtierSeries returns the seconds of an operation, by their number from 0 on.
func memtierSeries(run *Run, operation string) map[string]any {
	series := make(map[string]any)
	for n := range run.Series {
		i := slices.IndexFunc(run.Series[n].Operations, func(o loadgen.Operation) bool { return o.Name == operation })
		if i < 0 {
			continue
		}
		o := &run.Series[n].Operations[i]
		second := memtierPercentiles(&o.Nanos)
		second["Count"], second["Average Latency"], second["Max Latency"] = o.Count, millis(o.MeanNanos), millis(o.Nanos.Max)
		series[strconv.Itoa(n)] = second
	}
	return series
}

func millis(nanos int64) float64 { return float64(nanos) / 1e6 }
