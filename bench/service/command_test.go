package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/command"
	"github.com/kvd-db/kvd/internal/testwait"
)

// testOptions use the test binary as a kvd server.
func testOptions(t *testing.T, rows ...string) *options {
	self, err := os.Executable()
	require.NoError(t, err)
	return &options{
		rows: rows, rounds: 1, slot: minSlot, overload: time.Second, keys: 2000, valueBytes: 128,
		kvd: self, dir: t.TempDir(), out: filepath.Join(t.TempDir(), "slots.jsonl"), timeout: testwait.Left(),
	}
}

// fewKeys are too few in a slot for all of its figures to be above zero.
const fewKeys = 10

// runCompare returns the output and every slot, which must have been reported as a
// line. If a busy machine did next to nothing in a slot, it runs again with longer ones.
func runCompare(t *testing.T, o *options) (stdout, stderr string, slots []slot) {
	t.Helper()
	for {
		stdout, stderr, slots = runCompareOnce(t, o)
		idle := slices.ContainsFunc(slots, func(s slot) bool { return s.Run.Keys < fewKeys && s.Run.Overload == nil })
		if !idle {
			return stdout, stderr, slots
		}
		require.NoError(t, os.Remove(o.out))
		o.slot *= 2
		t.Logf("a slot with fewer than %d keys: again, with slots of %v", fewKeys, o.slot)
	}
}

func runCompareOnce(t *testing.T, o *options) (stdout, stderr string, slots []slot) {
	t.Helper()
	require.NoError(t, o.validate())
	var out, progress bytes.Buffer
	require.NoError(t, compare(t.Context(), o, &out, &progress), progress.String())
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left, "temporary files stay")
	text, err := os.ReadFile(o.out)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var s slot
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		slots = append(slots, s)
	}
	return out.String(), progress.String(), slots
}

// TestWhoIsNotInstalledIsSkippedLoudly: a missing contestant is reported, and the
// others are compared.
func TestWhoIsNotInstalledIsSkippedLoudly(t *testing.T) {
	t.Setenv("PATH", "")
	stdout, stderr, slots := runCompare(t, testOptions(t, "etcd", "memcached", "lone"))
	assert.Contains(t, stderr, "SKIPPED: etcd: etcd: there is no etcd\n")
	assert.Contains(t, stderr, "SKIPPED: gomemcache: memcached: there is no memcached\n")
	assert.Contains(t, stdout, "NOT MEASURED: etcd set, 256 callers\n")
	assert.Regexp(t, `(?m)^ *lone get, p50 +gRPC echo +[0-9.]+ us +[0-9.]+x \(.*\) +- +.* +<= 1\.1x +(yes|NO)$`, stdout)
	assert.Regexp(t, `(?m)^ *lone set sync, p50 +echo \+ append .* <= 1\.2x +(yes|NO)$`, stdout)
	assert.Regexp(t, `(?m)^ *get, batches of 64, keys +kvd `, stdout)
	assert.NotContains(t, stdout, "NaN")

	for _, s := range slots {
		assert.NotZero(t, s.Run.Keys, s)
		assert.Positive(t, s.Run.ClientCPU, s)
		assert.Positive(t, s.Run.Generator, s)
		if s.Contestant != appendOnly {
			assert.Positive(t, s.Run.ServerBytes, s)
			assert.GreaterOrEqual(t, s.Run.ServerPeakBytes, s.Run.ServerBytes/2, s)
		}
	}
}

// TestEveryServerHasTheKeys: a server that begins empty has less work than one that is full.
func TestEveryServerHasTheKeys(t *testing.T) {
	all, err := kinds("kvd")
	require.NoError(t, err)
	for name := range all {
		if name != "echo" && !strings.HasSuffix(name, apart) { // which stores nothing; which redis-benchmark's keys fill
			assert.NotEmpty(t, loader(name), name)
		}
	}
}

// TestKvdIsMeasuredBesideItself runs the rows in which the default store competes with
// its own plain calls.
func TestKvdIsMeasuredBesideItself(t *testing.T) {
	t.Setenv("PATH", "")
	o := testOptions(t, "memory", "update", "view", "conditional")
	o.contestants = []string{ours, oursUpdate, oursView, oursSnapshot, oursIfVersion, oursIfValue}
	stdout, _, slots := runCompare(t, o)
	require.Len(t, slots, 1+2*(2+3)+2*3)
	for _, s := range slots {
		assert.NotZero(t, s.Run.Gets.Count+s.Run.Sets.Count, "%s: %s", s.Cell, s.Contestant)
	}
	for _, row := range []string{
		"server memory, just filled +- +- +[0-9.]+ MiB .* <= 512 MiB", "server memory, worst .* <= 512 MiB",
		"kvd Update, 256 callers +- +- +[0-9.]+ k/s .* >= 40 k/s", "kvd Update, 256 callers, p50 .* <= 8000 us", "kvd Update, 64 callers, beside plain calls +kvd .*-",
		"kvd View, 256 callers .* >= 40 k/s", "kvd Snapshot, 256 callers, p50 .* <= 8000 us",
		"kvd IfVersion sync, 16 callers, beside plain sets +kvd .* >= 0.8x", "kvd IfValue sync, 256 callers, beside plain sets +kvd .* >= 0.8x",
	} {
		assert.Regexp(t, `(?m)^ *`+row+` +(yes|NO|-)$`, stdout)
	}
	assert.NotContains(t, stdout, "NaN")
}

// A cluster is measured beside a single node: all its processes count.
func TestAClusterIsMeasured(t *testing.T) {
	t.Setenv("PATH", "")
	stdout, stderr, slots := runCompare(t, testOptions(t, "cluster"))
	assert.Contains(t, stderr, "SKIPPED: etcd, three nodes: etcd-cluster: there is no etcd\n")
	require.Len(t, slots, 3*2)
	for _, s := range slots {
		assert.Positive(t, s.Run.ServerBytes, s)
	}
	for _, row := range []string{
		"set, 256 callers, three nodes, beside one node +kvd +[0-9.]+ k/s +[0-9.]+x .*-", "get, 256 callers, three nodes, beside one node +kvd .*-",
		"set, 1 caller, three nodes, p50, beside one node +kvd +[0-9.]+ us .*-",
	} {
		assert.Regexp(t, `(?m)^ *`+row+` +(yes|NO|-)$`, stdout)
	}
	assert.Contains(t, stdout, "NOT MEASURED: get, 256 callers, three nodes\n")
}

func TestContestantsTakeTurns(t *testing.T) {
	o := testOptions(t, "lone")
	o.rounds, o.contestants = 2, []string{ours, echo, appendOnly}
	_, _, slots := runCompare(t, o)
	var turns []string
	for _, s := range slots {
		if s.Cell == lonePutCell {
			turns = append(turns, s.Contestant)
		}
	}
	assert.Equal(t, []string{ours, echo, appendOnly, echo, appendOnly, ours}, turns)
}

func TestAnOverloadSaysWhatBecameOfIt(t *testing.T) {
	stdout, _, slots := runCompare(t, testOptions(t, "overload"))
	require.Len(t, slots, 1)
	o := slots[0].Run.Overload
	require.NotNil(t, o)
	assert.NotZero(t, o.Calm.Accepted.Count)
	for _, row := range []string{"goodput / peak", "p99 of accepted / calm", "peak memory / budget", "back to normal"} {
		assert.Regexp(t, `(?m)^ *overload, `+row+` .* (yes|NO)$`, stdout)
	}
	assert.Regexp(t, `(?m)^overload: [0-9.]+ k/s due, `, stdout)
}

func TestIdleConnectionsAreHeldBesideBusyOnes(t *testing.T) {
	who, err := findContestant(oursIdle)
	require.NoError(t, err)
	who.idle = 30
	defer func() { who.idle = idleConnections }()
	stdout, _, slots := runCompare(t, testOptions(t, "idle"))
	require.Len(t, slots, 2)
	assert.Nil(t, slots[0].Run.Held)
	require.NotNil(t, slots[1].Run.Held)
	assert.Equal(t, 30, *slots[1].Run.Held)
	assert.Regexp(t, `(?m)^ *idle connections held .* 30\.00 connections .* >= 10000 connections +NO$`, stdout)
}

func TestAnOccupiedFileForResultsIsKept(t *testing.T) {
	o := testOptions(t, "lone")
	require.NoError(t, os.WriteFile(o.out, []byte("old"), 0o600))
	require.ErrorIs(t, compare(t.Context(), o, &bytes.Buffer{}, &bytes.Buffer{}), os.ErrExist)
}

func TestAServerThatDoesNotStartIsReported(t *testing.T) {
	o := testOptions(t, "memcached")
	o.keys, o.contestants, o.kvd = 2000, []string{ours}, "/bin/false"
	require.NoError(t, o.validate())
	err := compare(t.Context(), o, &bytes.Buffer{}, &bytes.Buffer{})
	require.ErrorContains(t, err, "kvd ended")
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*options){
		"row":          func(o *options) { o.rows = []string{"sideways"} },
		"contestant":   func(o *options) { o.contestants = []string{"oracle"} },
		"rounds":       func(o *options) { o.rounds = 0 },
		"slot":         func(o *options) { o.slot = minSlot - 1 },
		"overload":     func(o *options) { o.overload = 0 },
		"keys":         func(o *options) { o.keys = leastKeys - 1 },
		"small values": func(o *options) { o.valueBytes = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t, "lone")
			spoil(o)
			require.ErrorIs(t, o.validate(), command.ErrUsage)
		})
	}
}

func TestTheLongFormKeepsWhatFlagsSay(t *testing.T) {
	o := options{rounds: 3, slot: time.Second, overload: time.Second}
	lengthen(&o, func(flag string) bool { return flag == "slot" })
	assert.Equal(t, 5, o.rounds)
	assert.Equal(t, time.Second, o.slot)
	assert.Equal(t, time.Minute, o.overload)
}

func TestEveryGoalNamesACellAndItsContestants(t *testing.T) {
	all := cells(testOptions(t))
	for _, c := range all {
		require.NoError(t, c.load.Validate(), c.name)
		assert.Contains(t, rows, c.row)
		for _, name := range c.contestants {
			one, err := findContestant(name)
			require.NoError(t, err)
			l := c.loadFor(one, 0)
			require.NoError(t, l.Validate(), "%s: %s", c.name, name)
		}
	}
	for _, g := range goals {
		i := slices.IndexFunc(all, func(c cell) bool { return c.name == g.Cells[0] })
		require.GreaterOrEqual(t, i, 0, g.Row)
		assert.Contains(t, all[i].contestants, g.ours, g.Row)
		for _, peer := range g.peers {
			if peer != echoAppend {
				assert.Contains(t, all[i].contestants, peer, g.Row)
			}
		}
	}
}
