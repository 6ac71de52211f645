package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/kvd-db/kvd/bench/process"
	"github.com/kvd-db/kvd/bench/service/load"
	"github.com/kvd-db/kvd/bench/service/server"
	"github.com/kvd-db/kvd/internal/loadgen"
)

// Calls of each connection of a tool: before it is measured, and measured at least. It
// opens its connections first, which takes a while, and its rates contain that.
const (
	warmCalls  = 10
	leastCalls = 50
)

// toolTries is how often the number of calls that fill a slot is estimated.
const toolTries = 3

// runTool measures redis-benchmark, Redis' own load generator: one connection for each
// caller, one call at a time each, and keys by its own numbering. It ends after a number
// of calls, so shorter runs find out how many fill a slot. It checks no answer.
func (a *arena) runTool(ctx context.Context, c *cell, s *server.Server) (*outcome, error) {
	l := &c.load
	o, err := runRedisBenchmark(ctx, l, s, l.Callers*warmCalls)
	for n := 0; err == nil && n < toolTries; n++ {
		calls := int(o.OpsPerSecond() * l.Duration.Seconds())
		o, err = runRedisBenchmark(ctx, l, s, max(calls, l.Callers*leastCalls))
		if err == nil && o.Seconds > l.Duration.Seconds()/2 {
			break
		}
	}
	return o, err
}

// runRedisBenchmark makes a number of calls.
func runRedisBenchmark(ctx context.Context, l *load.Closed, s *server.Server, calls int) (*outcome, error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return nil, err
	}
	what := "set"
	if l.GetPercent == 100 {
		what = "get"
	}
	before, err := process.CPU(s.PIDs()[0])
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, redisBench, "-h", host, "-p", port, "-c", strconv.Itoa(l.Callers), "-n", strconv.Itoa(calls),
		"-d", strconv.Itoa(l.ValueBytes), "-r", strconv.FormatUint(l.Keys, 10), "-t", what, "--csv")
	cmd.SysProcAttr = process.DieWithUs()
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", redisBench, err, stderr.Bytes())
	}
	after, err := process.CPU(s.PIDs()[0])
	if err != nil {
		return nil, err
	}
	kind, err := parseRedisBenchmark(stdout.Bytes(), calls)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", redisBench, err)
	}
	o := &outcome{ClientCPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), ServerCPU: after - before, Unchecked: true}
	o.Seconds, o.Keys = float64(calls)/kind.OpsPerSecond, uint64(calls)
	if what == "get" {
		o.Gets = kind
	} else {
		o.Sets = kind
	}
	pid := strconv.Itoa(s.PIDs()[0])
	o.ServerBytes, o.ServerPeakBytes = process.StatusBytes(pid, "VmRSS:"), process.StatusBytes(pid, "VmHWM:")
	return o, nil
}

// parseRedisBenchmark reads the output of one test with --csv: a line of names and a line
// of figures. There is no p99.9: it stays 0.
func parseRedisBenchmark(text []byte, calls int) (loadgen.Kind, error) {
	lines, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return loadgen.Kind{}, err
	}
	if len(lines) != 2 {
		return loadgen.Kind{}, fmt.Errorf("%d lines, want the names and the figures of one test: %.200q", len(lines), text)
	}
	figure := func(name string) (v float64) {
		i := slices.Index(lines[0], name)
		if err != nil || i < 0 {
			err = cmp.Or(err, fmt.Errorf("no figure is named %q in %.200q", name, text)) // the first error counts
			return 0
		}
		v, err = strconv.ParseFloat(lines[1][i], 64)
		return v
	}
	nanos := func(name string) int64 { return int64(figure(name) * float64(time.Millisecond)) }
	kind := loadgen.Kind{Count: uint64(calls), OpsPerSecond: figure("rps"), MeanNanos: nanos("avg_latency_ms")}
	kind.Nanos.P50, kind.Nanos.P95, kind.Nanos.P99, kind.Nanos.Max = nanos("p50_latency_ms"), nanos("p95_latency_ms"), nanos("p99_latency_ms"), nanos("max_latency_ms")
	if err == nil && kind.OpsPerSecond <= 0 {
		err = fmt.Errorf("a rate of %v", kind.OpsPerSecond)
	}
	return kind, err
}
