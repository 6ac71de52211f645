package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// TestWhatIsNotMeasuredShowsItsProgress: with the share that is done and the time that is left.
func TestWhatIsNotMeasuredShowsItsProgress(t *testing.T) {
	for line, shown := range map[string][]string{
		"run --threads 1 --keys 40 --preload 40 --warmup 4s --duration 1s": {
			`(?m)^preload  [45]\d % of 40 keys, 10 a second, 2s left$`,
			`(?m)^preload  100 % of 40 keys, 10 a second, 0s left$`,
			`(?m)^warming up  50 % of 4s, 2s left$`,
		},
		"sweep --threads 1 --keys 40 --rps 1 --warmup 3s --duration 1s --report r": {
			`(?m)^preload  [45]\d % of 40 keys`, `(?m)^warming up  67 % of 3s, 1s left$`,
		},
		"ycsb --threads 1 --workload C --records 2560 --memory 64MiB --warmup 3s --duration 1s --report r": {
			`(?m)^load  \d\d % of 2,560 records, \d+ a second, 2s left$`,
			`(?m)^audit  \d\d % of 2,560 records, \d+ a second, 2s left$`,
		},
		"microbatch --stores server --readers 16 --sizes 16 --rows 10000 --reads 10 --runs 1 --report r": {
			`(?m)^loading the table  \d % of 10,000 rows, \d+ a second, \S+ left$`,
		},
	} {
		t.Chdir(t.TempDir())
		synctest.Test(t, func(t *testing.T) {
			r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = 100 * time.Millisecond }, strings.Fields(line)...)
			require.Equal(t, exitOK, r.code, r.stderr)
			for _, pattern := range shown {
				assert.Regexp(t, pattern, r.stderr)
			}
			assert.LessOrEqual(t, strings.Count(r.stderr, "preload  100 %"), 1)
		})
	}
}

// TestASlowStoreShowsThatItOpensAndCloses: it may have a long log to replay.
func TestASlowStoreShowsThatItOpensAndCloses(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr strings.Builder
		code := execute(t.Context(), strings.Fields("run --threads 1 --keys 40 --duration 1s"), &stdout, &stderr,
			func(*targetOptions) (workload.Target, targetInfo, error) {
				time.Sleep(8500 * time.Millisecond)
				return slowToClose{&memoryTarget{values: make(map[string][]byte), takes: time.Second}}, targetInfo{}, nil
			})
		require.Equal(t, exitOK, code, stderr.String())
		assert.Contains(t, stderr.String(), "opening the store  2s\nopening the store  7s\n")
		assert.True(t, strings.HasSuffix(stderr.String(), "closing the store  2s\n"), stderr.String())
	})
}

type slowToClose struct{ *memoryTarget }

func (slowToClose) Close() error {
	time.Sleep(3500 * time.Millisecond)
	return nil
}

func TestTheProgressOfAFillingProcessIsReadUntilItEnds(t *testing.T) {
	var told []loadgen.Progress
	collect := func(p loadgen.Progress) { told = append(told, p) }
	line, err := awaitFilled(strings.NewReader(`{"what":"filling tables","things":"keys","done":3,"total":9,"elapsedNanos":5}`+"\n"+filled+"\nmore\n"), collect)
	require.NoError(t, err)
	assert.Equal(t, filled+"\n", line)
	assert.Equal(t, []loadgen.Progress{{What: "filling tables", Things: "keys", Done: 3, Total: 9, Elapsed: 5}}, told)
	for _, other := range []string{"", "{", "panic: x", "7\n"} {
		line, err = awaitFilled(strings.NewReader(other), collect)
		assert.Equal(t, other, line)
		assert.Equal(t, other != "7\n", err != nil, other)
	}
}
