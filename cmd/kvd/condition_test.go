package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
)

func TestAPutUnderAConditionThatDoesNotHoldIsExitCode4AndChangesNothing(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	first := strings.TrimSpace(p.must("put", "a", "1", "--if-absent", "--print-version"))
	for _, wrong := range [][]string{
		{"put", "a", "2", "--if-absent"},
		{"put", "a", "2", "--if-version", "0"},
		{"put", "a", "2", "--if-version", "999"},
		{"put", "a", "2", "--if-value", ""},
		{"put", "none", "2", "--if-present"},
		{"put", "none", "2", "--if-value", "1"},
		{"del", "a", "--if-value", "2"},
		{"del", "a", "--if-version", "999"},
	} {
		r := p.kvd(wrong...)
		assert.Equal(t, exitCondition, r.code, "%v: %s", wrong, r.err)
		if wrong[1] == "none" {
			assert.Contains(t, r.err, "the key is not there", wrong)
		} else {
			assert.Contains(t, r.err, "with version "+first+";", wrong)
		}
		assert.Empty(t, r.out, wrong)
	}
	assert.Equal(t, "1", p.must("get", "a"))
	assert.Equal(t, exitNotFound, p.kvd("get", "none").code)

	assert.Equal(t, first+"\t1", p.must("get", "--version", "a"))
	second := strings.TrimSpace(p.must("put", "a", "2", "--if-version", first, "--print-version"))
	assert.NotEqual(t, first, second)
	assert.Equal(t, second+"\t32\n", p.must("get", "--version", "--hex", "61"))
	p.must("put", "a", "3", "--if-present")
	p.must("put", "--hex", "61", "", "--if-value", "33")
	p.must("put", "a", "4", "--if-value", "")
	p.must("del", "a", "--if-value", "4")
	assert.Equal(t, exitNotFound, p.kvd("get", "a").code)
	third := strings.TrimSpace(p.must("put", "a", "5", "--if-version", "0", "--print-version"))
	p.must("del", "a", "--if-version", third)
	assert.Equal(t, exitNotFound, p.kvd("get", "a").code)
}

func TestAKeyWithATimeToLiveShowsItAndExpires(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	p.must("put", "a", "1", "--ttl", "1h")
	p.must("put", "b", "2")
	for _, args := range [][]string{{"get", "-o", "json", "a"}, {"scan", "-o", "json", "--end", "b"}} {
		var l lineJSON
		require.NoError(t, json.Unmarshal([]byte(p.must(args...)), &l))
		require.NotNil(t, l.TTLMillis, args)
		assert.Positive(t, *l.TTLMillis)
		assert.LessOrEqual(t, *l.TTLMillis, time.Hour.Milliseconds())
		assert.Equal(t, "1", *l.Value)
		assert.NotZero(t, l.Version)
	}
	assert.Equal(t, `{"key":"b","value":"2","version":2}`+"\n", p.must("get", "-o", "json", "b"))
	assert.Equal(t, exitNotFound, p.kvd("get", "-o", "json", "c").code)

	p.must("put", "a", "1", "--ttl", "1ms")
	testwait.Until(t, func() bool { return p.kvd("get", "a").code == exitNotFound })
	assert.Equal(t, "1\n", p.must("scan", "--count"))
}

func TestAnExportKeepsWhatIsLeftOfATimeToLive(t *testing.T) {
	from, to := serve(t, t.TempDir(), "--dev"), serve(t, t.TempDir(), "--dev")
	from.must("put", "forever", "1")
	from.must("put", "hour", "2", "--ttl", "1h")
	exported := from.must("export")
	r := to.kvdWith(exported, "import")
	require.Zero(t, r.code, r.err)

	left := func(text string) time.Duration {
		var found time.Duration
		for text := range strings.Lines(text) {
			l, err := parseLine([]byte(text))
			require.NoError(t, err)
			assert.Zero(t, l.Version, "exports of equal contents are equal")
			if string(l.Key) == "forever" {
				assert.Zero(t, l.TTL)
				continue
			}
			found = l.TTL
		}
		return found
	}
	before, after := left(exported), left(to.must("export"))
	assert.LessOrEqual(t, before, time.Hour)
	assert.LessOrEqual(t, after, before, "it is not begun anew")
	assert.Greater(t, after, 50*time.Minute)

	r = to.kvdWith(`{"key":"hour","value":"3"}`, "import")
	require.Zero(t, r.code, r.err)
	assert.Equal(t, `{"key":"hour","value":"3"}`+"\n", to.must("export", "--prefix", "hour"))
}
