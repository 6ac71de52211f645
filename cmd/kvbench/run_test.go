package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" { // a process that fills a store, or that gets signals
		os.Exit(run())
	}
	goleak.VerifyTestMain(m)
}

// memoryTarget is a correct store, unless told otherwise.
type memoryTarget struct {
	mu      sync.Mutex
	values  map[string][]byte
	puts    int
	onPut   func(n int) error
	onWork  func() // before each operation
	garbled bool
	closed  bool
	takes   time.Duration // each operation
	jitter  time.Duration // and up to twice this besides, by its key
}

// work is what an operation spends its time on.
func (m *memoryTarget) work(key []byte) {
	if m.onWork != nil {
		m.onWork()
	}
	takes := m.takes
	if m.jitter > 0 {
		h := fnv.New64a()
		h.Write(key)
		takes += time.Duration(h.Sum64() % uint64(2*m.jitter))
	}
	time.Sleep(takes)
}

func (m *memoryTarget) Put(_ context.Context, key, value []byte) error {
	m.work(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	m.values[string(key)] = bytes.Clone(value)
	if m.onPut != nil {
		return m.onPut(m.puts)
	}
	return nil
}

func (m *memoryTarget) Delete(_ context.Context, key []byte) error {
	m.work(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, string(key))
	return nil
}

func (m *memoryTarget) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) {
	m.work(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[string(key)]
	if ok && m.garbled {
		value = append([]byte("garbage"), value...)
	}
	return bytes.Clone(value), ok, nil
}

func (m *memoryTarget) Close() error {
	m.closed = true
	return nil
}

// refusingTarget refuses some operations because of overload, by their number.
type refusingTarget struct {
	*memoryTarget
	refuses func(n int64) bool
	calls   atomic.Int64
}

var errOverloaded = errors.New("overloaded")

func (r *refusingTarget) Refused(err error) bool { return errors.Is(err, errOverloaded) }

func (r *refusingTarget) Put(ctx context.Context, key, value []byte) error {
	if r.refuses(r.calls.Add(1)) {
		return errOverloaded
	}
	return r.memoryTarget.Put(ctx, key, value)
}

// refusing opens a refusingTarget.
func refusing(refuses func(n int64) bool) opener {
	return func(o *targetOptions) (workload.Target, targetInfo, error) {
		t := &refusingTarget{memoryTarget: &memoryTarget{values: make(map[string][]byte)}, refuses: refuses}
		return t, targetInfo{Kind: "memory", Durability: o.durability}, nil
	}
}

// result is what one command line came to.
type result struct {
	code           int
	stdout, stderr string
	target         *memoryTarget
	options        targetOptions // as the opener saw them
}

// runCommand executes a command line on a target in memory.
func runCommand(t *testing.T, ctx context.Context, change func(*memoryTarget), args ...string) result {
	t.Helper()
	t.Chdir(t.TempDir())
	r := result{target: &memoryTarget{values: make(map[string][]byte)}}
	if change != nil {
		change(r.target)
	}
	open := func(o *targetOptions) (workload.Target, targetInfo, error) {
		r.options = *o
		return r.target, targetInfo{Kind: "engine", Durability: o.durability, Partitions: o.partitions}, nil
	}
	var stdout, stderr bytes.Buffer
	r.code = execute(ctx, args, &stdout, &stderr, open)
	r.stdout, r.stderr = stdout.String(), stderr.String()
	return r
}

func TestRunReportsATableALineASecondAndLinesOfJSON(t *testing.T) {
	out := filepath.Join(t.TempDir(), "report.jsonl")
	synctest.Test(t, func(t *testing.T) { reportsATable(t, out) })
}

func reportsATable(t *testing.T, out string) {
	slow := func(m *memoryTarget) { m.takes = time.Millisecond }
	args := []string{"run", "--mix", "balanced", "--threads", "3", "--keys", "5000", "--value-size", "100",
		"--preload", "1000", "--duration", "1200ms", "--interval", "1s", "--check-deletes", "--out", out}
	r := runCommand(t, t.Context(), slow, args...)
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.True(t, r.target.closed)

	for _, part := range []string{"operation", "p99.9", "put", "delete", "get", "found rate", "GOMAXPROCS", "all answers right."} {
		assert.Contains(t, r.stdout, part)
	}
	assert.Regexp(t, `BALANCED on the embedded engine, 4 partitions, durability buffered, 3 threads: [0-9,]+ operations/s over 1\.2 s`, r.stdout)
	seconds := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.Len(t, seconds, 2, "one line for the first second, one for the rest: %s", r.stderr)
	assert.Regexp(t, `^1s +[0-9,]+ ops/s  p99: put \S+ +delete \S+ +get \S+ +errors 0$`, seconds[0])

	lines := readLines(t, out)
	require.Len(t, lines, 3)
	var first workload.Line
	require.NoError(t, json.Unmarshal(lines[0], &first))
	require.NotNil(t, first.DeleteFound)
	assert.NotZero(t, first.Put)
	assert.True(t, bytes.HasPrefix(lines[0], []byte(`{"nanoTime":`)))
	var last struct{ Summary workload.Summary }
	require.NoError(t, json.Unmarshal(lines[2], &last))
	assert.Equal(t, "BALANCED", last.Summary.Workload.Mix)
	assert.NotEmpty(t, last.Summary.Environment.Go)
	assert.NotEmpty(t, last.Summary.Environment.FileSystem)
	assert.Equal(t, "buffered", last.Summary.Target.(map[string]any)["durability"])

	again := execute(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}, func(o *targetOptions) (workload.Target, targetInfo, error) {
		m := &memoryTarget{values: make(map[string][]byte)}
		slow(m)
		return m, targetInfo{}, nil
	})
	require.Equal(t, exitOK, again)
	assert.Len(t, readLines(t, out), 6, "a second run appends")
}

func readLines(t *testing.T, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var lines [][]byte
	for s := bufio.NewScanner(f); s.Scan(); {
		require.True(t, json.Valid(s.Bytes()), s.Text())
		lines = append(lines, bytes.Clone(s.Bytes()))
	}
	return lines
}

func TestWithoutDataTheStoreIsNewAndGoneAfterwards(t *testing.T) {
	r := runCommand(t, t.Context(), func(m *memoryTarget) {
		m.onPut = func(n int) error {
			if n == 1 {
				entries, err := os.ReadDir(".")
				if err != nil {
					return err
				}
				if len(entries) != 1 || !entries[0].IsDir() {
					return errors.New("no directory")
				}
			}
			return nil
		}
	}, "run", "--keys", "100", "--duration", "50ms")
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.True(t, strings.HasPrefix(r.options.data, "kvbench-data-") || strings.HasPrefix(r.options.data, "./kvbench-data-"), r.options.data)
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestASignalEndsTheRunWithAReport(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	r := runCommand(t, ctx, func(m *memoryTarget) {
		m.onPut = func(n int) error {
			if n == 500 {
				signal()
			}
			return nil
		}
	}, "run", "--keys", "100", "--duration", "1h")
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.Contains(t, r.stdout, "interrupted, all answers right.")
}

func TestAWrongAnswerIsAnErrorWithAReport(t *testing.T) {
	r := runCommand(t, t.Context(), func(m *memoryTarget) { m.garbled = true },
		"run", "--keys", "100", "--mix", "GET_HEAVY", "--duration", "1h")
	require.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, "kvbench: wrong answer: the value of key 0")
	assert.Contains(t, r.stdout, "do not use these figures")
	assert.True(t, r.target.closed)
}

func TestAFailedOperationIsAnErrorWithItsReason(t *testing.T) {
	r := runCommand(t, t.Context(), func(m *memoryTarget) {
		m.onPut = func(int) error { return kv.ErrReadOnly }
	}, "run", "--keys", "100", "--preload", "10")
	require.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, "kvbench: preload: put key 0")
	assert.Contains(t, r.stderr, "read-only")
	assert.Empty(t, r.stdout)
}

func TestAReportThatCannotBeWrittenIsAnErrorBeforeAnythingRuns(t *testing.T) {
	r := runCommand(t, t.Context(), nil, "run", "--out", filepath.Join("no", "such", "directory"))
	require.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, "no/such/directory")
	assert.Zero(t, r.target.puts)
}

func TestWrongCommandLinesExitWithUsage(t *testing.T) {
	for line, says := range map[string]string{
		"run --mix ODD":                   "choose one of PUT_HEAVY, GET_HEAVY, DELETE_HEAVY, BALANCED",
		"run --distribution gauss":        "choose one of uniform, sequential",
		"run --durability paper":          "want memory, buffered or sync",
		"run --durability default":        "choose memory, buffered or sync",
		"run --threads 0":                 "0 threads",
		"run --find-rate 1.5":             "find rate 1.5",
		"run --value-size 10":             "values of 10 bytes",
		"run --value-size 10..90":         "values of 10 bytes",
		"run --value-size 9..":            "a range such as 100..4000",
		"run --theta 11":                  "theta of 11",
		"run --key-size 3":                "keys of 3 bytes",
		"run --compressible 2":            "a compressible share of 2",
		"run --interval 100ms":            "interval of 100ms",
		"run --partitions 0":              "--partitions 0",
		"run --linger=-1s":                "want 0 to 1m0s",
		"run --memory lots":               `"lots" is no size`,
		"run --addr :1 --data d":          "exclude each other",
		"run --addr :1 --partitions 8":    "--partitions shapes an engine in this process",
		"run --addr :1 --batch-ops 16":    "--batch-ops shapes an engine in this process",
		"run --no-such-flag":              "unknown flag: --no-such-flag",
		"run extra":                       `unknown command "extra"`,
		"walk":                            `unknown command "walk"`,
		"run --duration soon":             "invalid argument",
		"run --keys 100 --preload 101":    "preload of 101 keys",
		"run --warmup=-1s --duration=-1s": "duration of -1s",
	} {
		t.Run(line, func(t *testing.T) {
			r := runCommand(t, t.Context(), nil, strings.Fields(line)...)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, says)
			assert.Contains(t, r.stderr, "--help")
			assert.Zero(t, r.target.puts)
		})
	}
}

func TestHelpIsNoError(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"run", "--help"}} {
		r := runCommand(t, t.Context(), nil, args...)
		assert.Equal(t, exitOK, r.code)
		assert.Contains(t, r.stdout, "kvbench")
	}
}

func TestFlagsReachTheTarget(t *testing.T) {
	r := runCommand(t, t.Context(), nil, "run", "--keys", "100", "--duration", "10ms", "--data", "d", "--durability", "sync",
		"--partitions", "7", "--flush-keys", "1000", "--memory", "3MiB", "--batch-ops", "16", "--linger", "500us", "--seed", "9")
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.Equal(t, kv.DurabilitySync, r.options.level)
	assert.Equal(t, 7, r.options.partitions)
	assert.Equal(t, 1000, r.options.flushKeys)
	assert.EqualValues(t, 3<<20, r.options.memory)
	assert.Equal(t, 16, r.options.batchOps)
	assert.EqualValues(t, 500_000, r.options.linger)
	assert.Equal(t, "d", r.options.data)
}

func TestRunsAndTheirReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "report")
	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = time.Millisecond },
			"run", "--threads", "2", "--keys", "5000", "--value-size", "100", "--duration", "3s", "--runs", "3", "--report", dir)
		require.Equal(t, exitOK, r.code, r.stderr)
		assert.Equal(t, 3, strings.Count(r.stdout, "all answers right."))
		assert.Contains(t, r.stdout, "report       "+filepath.Join(dir, "report.html"))
	})
	back, err := results.Read(dir)
	require.NoError(t, err)
	require.Len(t, back.Cells, 1)
	assert.Equal(t, "mix PUT_HEAVY, threads 2, durability buffered, partitions 4", back.Cells[0].Name())
	require.Len(t, back.Cells[0].Runs, 3)
	for _, run := range back.Cells[0].Runs {
		assert.Len(t, run.Series, 3)
		assert.NotEmpty(t, run.Latencies)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	assert.Contains(t, string(page), "Latency by percentile")
}

func TestRunsNeedNewStores(t *testing.T) {
	for _, args := range [][]string{{"--runs", "0"}, {"--runs", "2", "--data", "here"}, {"--runs", "2", "--addr", "localhost:1"}} {
		r := runCommand(t, t.Context(), nil, append([]string{"run"}, args...)...)
		assert.Equal(t, exitUsage, r.code)
		assert.Contains(t, r.stderr, "--runs")
	}
}
