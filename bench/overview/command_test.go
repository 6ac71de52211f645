package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/command"
	"github.com/kvd-db/kvd/internal/results"
)

// Lines as compare and service write them: two engines in two rounds, and two contestants
// in one.
const (
	embeddedLines = `{"cell":"PUT_HEAVY, 4 threads","engine":"kvd","round":0,"run":{"summary":{"seconds":1,"ops":200,"opsPerSecond":200,"put":{"count":270,"nanos":{"p50":1000,"p99":2000,"max":3000}},"get":{"count":30,"nanos":{"p50":500,"p99":800,"max":900}},"generator":{"share":0.05},"cpuMicrosPerOp":3},"diskBytes":4096}}
{"cell":"PUT_HEAVY, 4 threads","engine":"pebble","round":0,"run":{"summary":{"seconds":1,"ops":100,"opsPerSecond":100,"put":{"count":90,"nanos":{"p50":3000,"p99":9000}},"get":{"count":10,"nanos":{"p50":600,"p99":900}},"cpuMicrosPerOp":9}}}
{"cell":"PUT_HEAVY, 4 threads","engine":"pebble","round":1,"run":{"summary":{"seconds":1,"ops":100,"opsPerSecond":100}}}
{"cell":"PUT_HEAVY, 4 threads","engine":"kvd","round":1,"run":{"summary":{"seconds":1,"ops":300,"opsPerSecond":300}}}
`
	serviceLines = `{"cell":"set sync, 64 callers","contestant":"kvd","round":0,"run":{"seconds":2,"keys":1000,"sets":{"count":1000,"nanos":{"p50":7000,"p99":8000,"max":9000}},"gets":{"count":0},"clientCPU":3000000,"serverCPU":5000000,"generator":200}}
{"cell":"set sync, 64 callers","contestant":"redis-benchmark","round":0,"run":{"seconds":2,"keys":4000,"sets":{"count":4000},"unchecked":true}}
`
)

// program writes a script that stands for compare or service: it writes lines to the file
// of --out, if its first arguments are those of a step, and ends with a code.
func program(t *testing.T, step, lines string, code int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	script := fmt.Sprintf(`#!/bin/sh
all=$*
while [ $# -gt 1 ]; do
  if [ "$1" = --out ]; then out=$2; fi
  shift
done
echo table
echo progress >&2
case $all in
%s\ *) cat >"$out" <<'END'
%sEND
  exit %d;;
esac
: >"$out"
`, step, lines, code)
	require.NoError(t, os.WriteFile(name, []byte(script), 0o755))
	return name
}

func testOptions(t *testing.T, compare, service string) *options {
	return &options{
		scale: 0.001, rounds: 2, kvd: "kvd", dir: ".", report: filepath.Join(t.TempDir(), "report"),
		programs: map[string]*string{partEmbedded: &compare, partService: &service},
	}
}

func TestOneReportHasTheSlotsOfBothPrograms(t *testing.T) {
	o := testOptions(t, program(t, "mix", embeddedLines, 0), program(t, `--rows\ mix,set,etcd`, serviceLines, 0))
	var stdout, stderr bytes.Buffer
	require.NoError(t, o.compare(t.Context(), &stdout, &stderr), stderr.String())
	r, err := results.Read(o.report)
	require.NoError(t, err)
	assert.Equal(t, "bench peers", r.Program+" "+r.Experiment)
	c := r.Cell([]results.Param{{Name: "part", Value: "embedded"}, {Name: "workload", Value: "PUT_HEAVY, 4 threads"}, {Name: "store", Value: "pebble"}, {Name: "durability", Value: waitProcess}})
	require.NotNil(t, c, "a store that waits for less than the others says so")
	require.Len(t, c.Runs, 2)
	assert.EqualValues(t, 90, c.Runs[0].Operation("put").Count)

	for _, row := range []string{
		`PUT_HEAVY, 4 threads +kvd +250 +- +3 µs +the kernel`, `pebble +100 +2\.50 \(2\.00-3\.00\) +9 µs +its own process`,
		`set sync, 64 callers +kvd +500 +- +8 µs +the disk`, `redis-benchmark +2k +0\.25 +- +the disk`,
		`PUT_HEAVY, 4 threads +kvd +1 µs +2 µs +3 µs +500 ns +800 ns +900 ns`, `set sync, 64 callers +kvd +7 µs +8 µs +9 µs +- +- +-`,
	} {
		assert.Regexp(t, `(?m)^ +`+row+`$`, stdout.String())
	}
	assert.Contains(t, stdout.String(), "Embedded, kvd is faster than a peer in 1 of 1 comparisons")
	page, err := os.ReadFile(filepath.Join(o.report, results.ReportFile))
	require.NoError(t, err)
	assert.Contains(t, string(page), "Rate of kvd over that of a peer")
	assert.Contains(t, string(page), "were not checked")
	for _, s := range plan(o.scale, o.rounds) {
		text, err := os.ReadFile(filepath.Join(o.report, s.file()+".txt"))
		require.NoError(t, err)
		assert.Equal(t, "table\n", string(text), "the tables of the program are kept")
	}
	assert.Equal(t, 6, strings.Count(stderr.String(), "progress\n"))

	require.NoError(t, o.compare(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}), "a report is written again")
}

func TestAFailedProgramEndsTheRunAndWhatWasMeasuredIsReported(t *testing.T) {
	o := testOptions(t, program(t, "mix", embeddedLines, 0), program(t, `--rows\ get`, serviceLines, 1))
	require.ErrorContains(t, o.compare(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}), "service-get: exit status 1")
	r, err := results.Read(o.report)
	require.NoError(t, err)
	assert.Len(t, cellsOf(r, partService), 2, "with what it had measured")

	o = testOptions(t, "no-such-program", "no-such-program")
	require.ErrorContains(t, o.compare(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}), "embedded-put: exec:")
	o = testOptions(t, program(t, "put", "{\"cell\";\n", 0), "")
	require.ErrorContains(t, o.compare(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}), "embedded-put: invalid character")
	o = testOptions(t, program(t, "put", "{\"cell\":\"c\",\"run\":7}\n", 0), "")
	require.ErrorContains(t, o.compare(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}), "embedded-put, c: json:")
}

func TestASignalEndsTheProgramOfTheStep(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := testOptions(t, program(t, "put", embeddedLines, 0), "")
	require.ErrorIs(t, o.compare(ctx, &bytes.Buffer{}, &bytes.Buffer{}), context.Canceled)
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for says, spoil := range map[string]func(*options){
		"--scale NaN: want more than 0": func(o *options) { o.scale = math.NaN() },
		"--scale 11: want":              func(o *options) { o.scale = 11 },
		"--rounds 0: want at least 1":   func(o *options) { o.rounds = 0 },
		"--report needs the name":       func(o *options) { o.report = "" },
	} {
		o := testOptions(t, "", "")
		spoil(o)
		err := o.validate()
		require.ErrorIs(t, err, command.ErrUsage)
		require.ErrorContains(t, err, says)
	}
}

func TestAScaleShortensThePlan(t *testing.T) {
	full, short := plan(1, 3), plan(1e-6, 1)
	require.Len(t, short, len(full))
	assert.Contains(t, strings.Join(full[1].args, " "), "--rounds 3 --keys 5000000 --slot 1m0s --memory 1024")
	assert.Contains(t, strings.Join(short[1].args, " "), "--rounds 1 --keys 10000 --slot 300ms --memory 256")
	for _, s := range full {
		assert.NotEmpty(t, s.durability)
	}
}
