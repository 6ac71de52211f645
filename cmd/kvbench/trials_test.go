package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/workload"
)

// bench runs a command line in a directory of its own.
func bench(t *testing.T, open opener, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return benchUntil(t, t.Context(), open, args...)
}

// benchUntil is bench until a context ends.
func benchUntil(t *testing.T, ctx context.Context, open opener, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	var out, err bytes.Buffer
	code = execute(ctx, args, &out, &err, open)
	return code, out.String(), err.String()
}

func TestCoreWorkloadsRunOnTheEngineAndOnAServer(t *testing.T) {
	threads, trials := "1,4", "load A A B B C C F F D D E E"
	if testsize.Reduced() {
		threads, trials = "4", "load A B C F D E"
	}
	for name, where := range map[string][]string{
		"engine": {"--partitions", "2", "--memory", "4MiB"},
		"server": {"--addr", serve(t)},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"ycsb", "--records", "300", "--field-bytes", "20", "--operations", "200", "--threads", threads, "--out", "r"}, where...)
			code, stdout, stderr := bench(t, openTarget, args...)
			require.Equal(t, exitOK, code, stderr)
			assert.Contains(t, stdout, "300 records of 200 bytes on the ")
			assert.Contains(t, stdout, "all answers right, all records audited.")
			for _, operation := range []string{"read", "update", "insert", "scan", "read-modify-write"} {
				assert.Contains(t, stdout, operation)
			}

			type summary struct {
				Benchmark, Workload string
				Threads             int
				Settings            recordSettings
				Target              targetInfo
				Environment         loadgen.Environment
				loadgen.Trial
			}
			var order []string
			samples := 0
			for _, line := range readLines(t, "r") {
				var l struct {
					Summary   *summary
					Benchmark string
					NanoTime  int64
				}
				require.NoError(t, json.Unmarshal(line, &l))
				if l.Summary == nil {
					samples++
					assert.Equal(t, "ycsb", l.Benchmark)
					assert.Positive(t, l.NanoTime)
					continue
				}
				s := l.Summary
				order = append(order, s.Workload)
				assert.Equal(t, recordSettings{Records: 300, KeyBytes: 24, ValueBytes: 200, Theta: 0.99, Seed: 1, Operations: 200}, s.Settings)
				assert.Equal(t, name, s.Target.Kind)
				assert.NotEmpty(t, s.Environment.Go)
				if s.Workload != "load" {
					assert.EqualValues(t, 200, s.Ops)
				}
			}
			assert.Equal(t, trials, strings.Join(order, " "))
			assert.GreaterOrEqual(t, samples, len(order), "a line for what was left of each interval")
		})
	}
}

func TestTransactionsRunOnTheEngineAndOnAServer(t *testing.T) {
	for name, where := range map[string][]string{"engine": nil, "server": {"--addr", serve(t)}} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"txn", "--keys", "200", "--field-bytes", "10", "--threads", "1,8", "--duration", "50ms",
				"--reads", "3", "--writes", "2", "--hot-fraction", "0.02", "--hot-rate", "0.9"}, where...)
			want := exitOK
			if name == "engine" {
				args, want = append(args, missed("transaction")...), exitSLO
			}
			code, stdout, stderr := bench(t, openTarget, args...)
			require.Equal(t, want, code, stderr)
			if want == exitSLO {
				assertMissed(t, "transaction", stderr)
			}
			assert.Regexp(t, `3r2w\s+1\s+all\s+[0-9,]+\s+[0-9,]+\s+1\.00\s+0\.0 %`, stdout)
			assert.Regexp(t, `3r2w\s+8\s+all\s+[0-9,]+\s+[0-9,]+\s+[0-9.]+\s+[0-9.]+ %`, stdout)
			assert.Contains(t, stdout, "2.0 % of them hot, for 90.0 % of the reads, on the")
			assert.Contains(t, stdout, "all answers right, all records audited.")
		})
	}
}

func TestReadersBesideAWriterAreReportedWithTheirRatio(t *testing.T) {
	code, stdout, stderr := bench(t, openTarget, "txn", "--read-beside", "--keys", "200", "--field-bytes", "10", "--threads", "2",
		"--duration", "50ms", "--rounds", "2", "--out", "r")
	require.Equal(t, exitOK, code, stderr)
	assert.Regexp(t, `2 readers beside [0-9,]+ transactions/s: [0-9.]+ % of alone \(median of 2 rounds\)\.`, stdout)
	for _, name := range []string{"writer alone", "readers alone", "readers beside a writer"} {
		assert.Contains(t, stdout, name)
	}
	lines := readLines(t, "r")
	var last struct {
		Summary struct {
			Comparison workload.Beside
		}
	}
	require.NoError(t, json.Unmarshal(lines[len(lines)-1], &last))
	assert.Len(t, last.Summary.Comparison.Reads.Ratios, 2)
	assert.Positive(t, last.Summary.Comparison.Reads.MedianRatio)
	assert.Positive(t, last.Summary.Comparison.PeakWrites)
	assert.Len(t, last.Summary.Comparison.Written, 2)
}

func TestSnapshotsRunOnTheEngineAndOnAServer(t *testing.T) {
	for name, where := range map[string][]string{"engine": nil, "server": {"--addr", serve(t)}} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"snapshots", "--records", "100", "--field-bytes", "10", "--threads", "2", "--duration", "1100ms", "--rounds", "1"}, where...)
			code, stdout, stderr := bench(t, pausing(t, 2*time.Millisecond), args...)
			require.Equal(t, exitOK, code, stderr)
			assert.Regexp(t, `2 writers beside a snapshot a second: [0-9.]+ % of alone \(median of 1 round\)\.`, stdout)
			assert.Regexp(t, `take snapshot\s+[12]`, stdout)
		})
	}
}

// forgetful loses what transactions write.
type forgetful struct{ *engineTarget }

func (f forgetful) Transact(ctx context.Context, body func(context.Context, workload.Transaction) error) (int, error) {
	lost := errors.New("lost")
	_, err := f.engineTarget.Transact(ctx, func(ctx context.Context, tx workload.Transaction) error {
		return errors.Join(body(ctx, tx), lost)
	})
	if err != nil && strings.HasSuffix(err.Error(), lost.Error()) && !errors.Is(err, workload.ErrWrongAnswer) {
		err = nil
	}
	return 0, err
}

func TestALostUpdateIsAnErrorWithATable(t *testing.T) {
	for _, line := range []string{
		"ycsb --workload A,F --records 50 --operations 1000",
		"txn --keys 50 --duration 1h",
		"txn --read-beside --keys 50 --duration 1h",
	} {
		code, stdout, stderr := bench(t, func(o *targetOptions) (workload.Target, targetInfo, error) {
			target, info, err := openEngine(o)
			if err != nil {
				return nil, info, err
			}
			return forgetful{target.(*engineTarget)}, info, nil
		}, strings.Fields(line)...)
		require.Equal(t, exitError, code, line)
		assert.Contains(t, stderr, "an update was lost")
		assert.Contains(t, stdout, "do not use these figures")
		stores, err := filepath.Glob("kvbench-data-*")
		require.NoError(t, err)
		assert.Empty(t, stores, "the store is removed all the same")
	}
}

func TestASignalEndsTheTrialsWithATable(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	defer signal()
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	open := func(o *targetOptions) (workload.Target, targetInfo, error) {
		target, info, err := openEngine(o)
		if err != nil {
			return nil, info, err
		}
		return &signalling{engineTarget: target.(*engineTarget), after: 500, signal: signal}, info, nil
	}
	args := []string{"ycsb", "--workload", "C,A", "--records", "100", "--threads", "1", "--duration", "1h"}
	require.Equal(t, exitOK, execute(ctx, args, &stdout, &stderr, open), stderr.String())
	assert.Contains(t, stdout.String(), "interrupted, all answers right.")
	assert.NotRegexp(t, `A\s+1\s+all`, stdout.String())
}

// signalling ends the command after so many reads of one worker.
type signalling struct {
	*engineTarget
	after  int
	signal func()
}

func (s *signalling) Get(ctx context.Context, key, buf []byte) ([]byte, bool, error) {
	if s.after--; s.after == 0 {
		s.signal()
	}
	return s.engineTarget.Get(ctx, key, buf)
}

func TestWrongCommandLinesOfTrialsExitWithUsage(t *testing.T) {
	for line, says := range map[string]string{
		"ycsb --scale 0":                           "--scale 0",
		"ycsb --runs 0":                            "--runs 0",
		"ycsb --runs 2 --addr :1":                  "--runs needs a new store",
		"ycsb --report=":                           "--report needs the name",
		"ycsb --caches small":                      "want sizes such as 4MiB",
		"ycsb --caches 4MiB --memory 1GiB":         "--caches needs a new store for each size",
		"ycsb --theta 12":                          "theta of 12",
		"ycsb --workload G":                        `unknown core workload "G"; choose of A, B, C, D, E and F`,
		"ycsb --records 0":                         "--records 0",
		"ycsb --threads 1,0":                       "0 threads",
		"ycsb --threads many":                      "invalid argument",
		"ycsb --fields 1 --field-bytes 27":         "records of 27 bytes; want at least 28",
		"ycsb --fields 0":                          "0 fields of 100 bytes",
		"ycsb --fields 1000000 --field-bytes 1000": "a value of at most 4.0 MiB",
		"ycsb --operations 5 --duration 1s":        "want one of the two",
		"ycsb --durability paper":                  "want memory, buffered or sync",
		"ycsb --addr :1 --memory 1GiB":             "--memory shapes an engine in this process",
		"txn --writes 5":                           "5 writes a transaction; want 0 to 4",
		"txn --hot-fraction 2":                     "hot fraction 2",
		"txn --write-rate 5":                       "--write-rate goes with --read-beside",
		"txn --read-beside --rounds 0":             "--rounds 0",
		"txn --read-beside --report r":             "--report has no effect with --read-beside",
		"txn --read-beside --writes 0":             "nothing to write",
		"txn --keys 3":                             "4 reads a transaction from 3 records",
		"snapshots --duration 1s":                  "want more than 1s",
		"snapshots --rounds 0":                     "--rounds 0",
		"snapshots --interval 1ms":                 "interval of 1ms",
	} {
		t.Run(line, func(t *testing.T) {
			code, _, stderr := bench(t, func(*targetOptions) (workload.Target, targetInfo, error) {
				return nil, targetInfo{}, errors.New("opened")
			}, strings.Fields(line)...)
			assert.Equal(t, exitUsage, code)
			assert.Contains(t, stderr, says)
			assert.Contains(t, stderr, "--help")
		})
	}
}

// goldenRows are trials whose figures are all different.
func goldenRows() []trialRow {
	next := int64(0)
	operation := func(name string, count uint64) loadgen.Operation {
		next += 1000
		return loadgen.Operation{Name: name, Kind: loadgen.Kind{
			Count: count, OpsPerSecond: float64(count) / 2, MeanNanos: next,
			Nanos: loadgen.Latency{P50: next + 100, P99: next * 10, P999: next * 100, Max: next * 12345},
		}}
	}
	row := func(name string, threads int, conflictRate float64, operations ...loadgen.Operation) trialRow {
		t := &loadgen.Trial{Seconds: 2, ConflictRate: conflictRate, Operations: operations}
		for _, o := range operations {
			t.Ops += o.Count
			t.OpsPerSecond += o.OpsPerSecond
		}
		return trialRow{trialLabel{"ycsb", name, threads}, t}
	}
	return []trialRow{
		row("A", 1, 0, operation("read", 50_000), operation("update", 49_876)),
		row("A", 16, 0, operation("read", 150_000), operation("update", 150_123)),
		row("E", 1, 0, operation("insert", 12), operation("scan", 345)),
		row("F", 16, 0.123, operation("read", 1_234_567), operation("read-modify-write", 1_200_000)),
		row("C", 2, 0),
	}
}

func TestTheTableOfTrialsIsGolden(t *testing.T) {
	var b bytes.Buffer
	trialTable(&b, goldenRows())
	b.WriteString("\n")
	require.NoError(t, printComparisons(&b, []comparison{
		{"2 readers beside 100 transactions/s", &loadgen.Comparison{
			Without: []float64{100_000, 90_000}, With: []float64{95_000, 81_000}, Ratios: []float64{0.95, 0.9}, MedianRatio: 0.925,
		}, []string{"The writer was slow."}},
		{"4 readers beside 100 transactions/s", &loadgen.Comparison{}, nil},
	}))
	path := filepath.Join("testdata", "trials.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String())
}

func TestTheLiveLineOfATrialHasItsOperations(t *testing.T) {
	var out bytes.Buffer
	v := &liveView{out: &out}
	v.sample(trialLabel{"ycsb", "F", 16}, loadgen.Sample{
		NanoTime: 3 * time.Second.Nanoseconds(), OpsPerSecond: 12345, Conflicts: 1234,
		Operations: []loadgen.Operation{
			{Name: "read", Kind: loadgen.Kind{Count: 1, Nanos: loadgen.Latency{P99: 12_000}}},
			{Name: "read-modify-write", Kind: loadgen.Kind{Count: 1, Nanos: loadgen.Latency{P99: 340_000}}},
		},
	})
	assert.Equal(t, "A, 1 thread", trialLabel{Workload: "A", Threads: 1}.String())
	assert.Equal(t, "F, 16 threads    3s     12,345 ops/s  p99: read 12µs    read-modify-write 340µs    conflicts 1,234  errors 0\n", out.String())
}

func TestWarningsOfTrialsNameTheTrial(t *testing.T) {
	rows := goldenRows()
	rows[1].trial.Generator = loadgen.Generator{Share: 0.25, NanosPerOp: 700}
	all := strings.Join(trialWarnings(rows, &loadgen.Environment{FileSystem: "tmpfs"}), "\n")
	assert.Contains(t, all, "A, 16 threads: The generator took 25 %")
	assert.Contains(t, all, "Closed loop")
	assert.Contains(t, all, "tmpfs")
	assert.Equal(t, "ended by an error, so do not use these figures", verdict(rows, errors.New("x")))
}
