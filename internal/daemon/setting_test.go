package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestEverySettingHasOneNameHelpAndADefaultThatItTakes(t *testing.T) {
	c := DefaultConfig()
	seen := map[string]bool{}
	for _, s := range c.Settings() {
		assert.False(t, seen[s.Name], s.Name)
		seen[s.Name] = true
		assert.NotEmpty(t, s.Help, s.Name)
		assert.NotEmpty(t, s.Type(), s.Name)
		assert.Equal(t, strings.ToLower(s.Name), s.Name)
		before := s.String()
		require.NoError(t, s.Set(before), s.Name)
		assert.Equal(t, before, s.String(), s.Name)
	}
	assert.Empty(t, NonDefault(c.Settings()), "what is set to its default is the default")
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	c := DefaultConfig()
	settings := c.Settings()
	byName := map[string]*Setting{}
	for _, s := range settings {
		byName[s.Name] = s
	}
	require.NoError(t, byName["linger"].Set("500us"))
	require.NoError(t, SetFromEnv(settings, []string{
		"HOME=/root", "KVD_LINGER=1s", "KVD_BATCH_OPS=32", "KVD_MEMORY=1GiB", "KVD_DURABILITY=buffered",
		"KVD_DEV=true", "KVD_LOG_FORMAT=json", "KVD_GRACE=10s", "KVD_ADDR=elsewhere",
	}, "KVD_ADDR"))
	assert.Equal(t, 500*time.Microsecond, c.Linger)
	assert.Equal(t, 32, c.BatchOps)
	assert.EqualValues(t, 1<<30, c.Memory)
	assert.Equal(t, kv.DurabilityBuffered, c.Durability)
	assert.True(t, c.Dev)
	assert.Equal(t, []string{
		"durability=buffered (KVD_DURABILITY)", "memory=1GiB (KVD_MEMORY)", "batch-ops=32 (KVD_BATCH_OPS)",
		"linger=500µs (--linger)", "log-format=json (KVD_LOG_FORMAT)", "dev=true (KVD_DEV)",
	}, NonDefault(settings), "grace was set to its default")
}

func TestUnknownOrUnreadableVariablesAreErrors(t *testing.T) {
	for entry, want := range map[string]string{
		"KVD_DURABILTY=sync":  "did you mean KVD_DURABILITY?",
		"KVD_ADR=x":           "did you mean KVD_ADDR?",
		"KVD_WHATEVER_THIS=1": "see kvd serve --help",
		"KVD_BATCH_OPS=many":  `KVD_BATCH_OPS="many"`,
		"KVD_BATCH_OPS=-1":    "whole number",
		"KVD_LINGER=5":        "no duration",
		"KVD_DEV=perhaps":     "neither true nor false",
		"KVD_LOG_LEVEL=loud":  "none of debug, info, warn, error",
		"KVD_LOW_DISK=-5MiB":  "no size",
		"KVD_DURABILITY=none": "want memory, buffered or sync",
	} {
		c := DefaultConfig()
		err := SetFromEnv(c.Settings(), []string{entry}, "KVD_ADDR")
		require.ErrorIs(t, err, ErrUsage, entry)
		require.ErrorContains(t, err, want)
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}} {
		assert.Equal(t, c.want, editDistance(c.a, c.b), "%s %s", c.a, c.b)
	}
}
