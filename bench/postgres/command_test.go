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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/command"
	"github.com/kvd-db/kvd/bench/service/server"
	"github.com/kvd-db/kvd/bench/service/server/servertest"
	"github.com/kvd-db/kvd/internal/results"
)

// TestMain lets the test binary be the kvd server that a test starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		if err := servertest.Serve(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(command.ExitError)
		}
		os.Exit(command.ExitOK)
	}
	os.Exit(m.Run())
}

// testOptions are of a run as small as it can be.
func testOptions(t *testing.T, stores ...string) *options {
	self, err := os.Executable()
	require.NoError(t, err)
	return &options{
		stores: stores, sizes: []int{2}, readers: 8, rows: 2500, reads: 500, inRow: 1, connections: 3, workers: 2,
		linger: time.Millisecond, runs: 1, scale: 1, kvd: self, dir: openDir(t), report: filepath.Join(t.TempDir(), "report"),
	}
}

// openDir returns a temporary directory that other users may enter, as PostgreSQL has to
// if the tests run as root.
func openDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "bench-postgres-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// runCompare returns the output, the progress and the result of a run, which must have
// removed its temporary files.
func runCompare(t *testing.T, o *options) (stdout, stderr string, r *results.Result) {
	t.Helper()
	require.NoError(t, o.validate())
	var out, progress bytes.Buffer
	require.NoError(t, o.compare(t.Context(), &out, &progress), progress.String())
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left, "temporary files stay")
	r, err = results.Read(o.report)
	require.NoError(t, err)
	for _, name := range []string{results.ReportFile, results.SeriesFile, results.BenchFile, "statistics.csv"} {
		assert.FileExists(t, filepath.Join(o.report, name))
	}
	return out.String(), progress.String(), r
}

// cellNames returns the store and the batch size of each cell, and checks its runs.
func cellNames(t *testing.T, r *results.Result, o *options) (names []string) {
	t.Helper()
	for _, c := range r.Cells {
		names = append(names, c.Param("store")+" "+c.Param("batch"))
		require.Len(t, c.Runs, o.runs)
		assert.Equal(t, o.scaledReads(), c.Runs[0].Operation("get").Count)
	}
	return names
}

// TestThePostgreSQLServerAnswersReadsAndBatches is a real run of everything.
func TestThePostgreSQLServerAnswersReadsAndBatches(t *testing.T) {
	kind, err := server.PostgreSQL("", "", 1)
	require.NoError(t, err)
	if err := kind.Find(); err != nil {
		t.Skipf("NOT TESTED: %v; install Debian's package postgresql to run this test", err)
	}
	o := testOptions(t, stores...)
	stdout, stderr, r := runCompare(t, o)
	assert.Contains(t, stderr, "postgresql: 2500 of 2500 rows")
	assert.Equal(t, []string{
		"postgresql none", "postgresql 2", "kvd server none", "kvd server 2", "kvd server adaptive", "kvd embedded adaptive",
	}, cellNames(t, r, o))
	perBatch, ok := r.Cells[1].Measure("reads/batch")
	assert.True(t, ok)
	assert.True(t, perBatch >= 1 && perBatch <= 2, "%v", perBatch)
	assert.Regexp(t, `PostgreSQL answers [0-9.]+ times as many reads in batches of 2 as unbatched; the article measured 1\.2 times\.`, stdout)
	assert.Equal(t, "bench", r.Program)
}

func TestAStoreThatIsNotInstalledIsSkippedLoudly(t *testing.T) {
	o := testOptions(t, storePostgreSQL, storeServer, storeEmbedded)
	o.binaries, o.kvd = t.TempDir(), "no-such-binary"
	stdout, stderr, r := runCompare(t, o)
	assert.Contains(t, stderr, "SKIPPED: postgresql: there is no "+o.binaries+"/postgres; install Debian's package postgresql, or name the directory of its binaries with --postgres\n")
	assert.Contains(t, stderr, "SKIPPED: kvd: there is no no-such-binary; build it with make build, or name it with --kvd\n")
	assert.Equal(t, []string{"kvd embedded adaptive"}, cellNames(t, r, o))
	assert.Contains(t, stdout, "PostgreSQL was not measured")
	assert.NotContains(t, stdout, "NaN")

	o.stores, o.report = []string{storePostgreSQL}, filepath.Join(t.TempDir(), "report")
	require.ErrorContains(t, o.compare(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}), "no store is left to measure")
}

func TestAClusterThatCannotBeMadeSaysWhy(t *testing.T) {
	binaries := openDir(t)
	for name, script := range map[string]string{"postgres": "exit 0", "initdb": "echo no locale; exit 3"} {
		require.NoError(t, os.WriteFile(filepath.Join(binaries, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	o := testOptions(t, storePostgreSQL)
	o.binaries = binaries
	err := o.compare(t.Context(), &bytes.Buffer{}, &bytes.Buffer{})
	if os.Geteuid() == 0 && strings.Contains(fmt.Sprint(err), "unknown user") {
		t.Skipf("NOT TESTED: %v", err)
	}
	require.ErrorContains(t, err, "postgresql: initdb: exit status 3")
	require.ErrorContains(t, err, "no locale")
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestARunThatIsInterruptedBeforeItMeasuresIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := testOptions(t, storeEmbedded)
	require.Error(t, o.compare(ctx, &bytes.Buffer{}, &bytes.Buffer{}))
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// interruption is a signal that arrives when a text is written.
type interruption struct {
	bytes.Buffer
	at   string
	send func()
}

func (s *interruption) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte(s.at)) {
		s.send()
	}
	return s.Buffer.Write(text)
}

func TestARunThatIsInterruptedReportsWhatItMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := testOptions(t, storeEmbedded)
	o.runs = 3
	progress := &interruption{at: "run 2 of 3", send: cancel}
	var stdout bytes.Buffer
	require.NoError(t, o.compare(ctx, &stdout, progress), progress.String())
	assert.Contains(t, progress.String(), "interrupted: the report has what was measured until now")
	r, err := results.Read(o.report)
	require.NoError(t, err)
	require.Len(t, r.Cells, 1)
	assert.Len(t, r.Cells[0].Runs, 1)
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestAWrongAnswerEndsTheRun(t *testing.T) {
	l := &load{rows: 10, reads: 100, inRow: 1, readers: 2}
	wrong := func() reader { return func(context.Context, []byte) ([]byte, error) { return []byte("nothing"), nil } }
	_, err := l.run(t.Context(), wrong, nil)
	require.ErrorIs(t, err, errWrongAnswer)
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for says, spoil := range map[string]func(*options){
		`--stores "oracle": want some of`: func(o *options) { o.stores = []string{"oracle"} },
		"--stores: want some of":          func(o *options) { o.stores = nil },
		"--sizes 0: want 1 to 1024":       func(o *options) { o.sizes = []int{4, 0} },
		"--readers 0: want 1 to":          func(o *options) { o.readers = 0 },
		"--scale NaN: want more than 0":   func(o *options) { o.scale = math.NaN() },
		"--rows 0: want 1 to":             func(o *options) { o.rows = 0 },
		"--reads 7: want at least one":    func(o *options) { o.reads = 7 },
		"--in-row 0: want at least 1":     func(o *options) { o.inRow = 0 },
		"--connections 0: want 1 to 1000": func(o *options) { o.connections = 0 },
		"--workers 4: want 1 to":          func(o *options) { o.workers = 4 },
		"--linger 0s: want more than 0":   func(o *options) { o.linger = 0 },
		"--runs 0: want at least 1":       func(o *options) { o.runs = 0 },
		"--report needs the name":         func(o *options) { o.report = "" },
	} {
		t.Run(says, func(t *testing.T) {
			o := testOptions(t, storeEmbedded)
			spoil(o)
			err := o.validate()
			require.ErrorIs(t, err, command.ErrUsage)
			require.ErrorContains(t, err, says)
		})
	}
}

func TestArgumentsThatAreNoFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"--bogus"}, {"--sizes", "many"}} {
		c := newCommand()
		c.SetArgs(args)
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetFlagErrorFunc(command.FlagError)
		require.ErrorIs(t, c.Execute(), command.ErrUsage, "%q", args)
	}
}

func TestAScaleLeavesEnoughToMeasure(t *testing.T) {
	o := &options{rows: 3_000_000, reads: 3_000_000, scale: 0.1}
	assert.EqualValues(t, 300_000, o.scaledRows())
	o.scale = 1e-9
	assert.EqualValues(t, leastRows, o.scaledRows())
	assert.EqualValues(t, leastReads, o.scaledReads())
	o.rows = 10
	assert.EqualValues(t, 10, o.scaledRows(), "not more than the flag says")
}
