package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/testwait"
)

func TestALiveSettingIsChangedWithoutARestart(t *testing.T) {
	file := writeConfig(t, "slow-log-time: 1h\n")
	p := serve(t, t.TempDir(), "--config", file)
	assert.Equal(t, "slow-log-time: 1h0m0s -> 2h0m0s, until the server restarts or reads its configuration file again\n",
		p.must("config", "set", "slow-log-time", "2h"))
	assert.Contains(t, p.must("slowlog"), "requests of 2h0m0s or longer")
	assert.Equal(t, "slow-log-time is 2h0m0s already\n", p.must("config", "set", "slow-log-time", "120m"))
	testwait.Until(t, func() bool { return strings.Contains(p.log.String(), "config set") })
	assert.Regexp(t, `"setting": "slow-log-time", "from": "1h0m0s", "to": "2h0m0s", "by": "127\.0\.0\.1`, p.log.String())

	p.must("config", "set", "log-level", "error")
	p.must("config", "set", "log-level", "info")
	assert.NotContains(t, p.log.String(), `"from": "error"`, "the level was error until then")

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	testwait.Until(t, func() bool { return strings.Contains(p.log.String(), "files were read again") })
	assert.Contains(t, p.must("slowlog"), "requests of 1h0m0s or longer", "as the file has it")
	assert.Zero(t, p.end(syscall.SIGTERM))
}

func TestASettingThatCannotBeSetIsRefusedWithTheReason(t *testing.T) {
	p := serve(t, t.TempDir())
	for _, c := range []struct{ name, value, says string }{
		{"memory", "1GiB", "memory changes only with a restart; these change while the server runs: grace, "},
		{"log-levle", "debug", "did you mean log-level?"},
		{"LOG-LEVEL", "debug", "is not a setting"},
		{"log-level", "loud", "none of debug, info, warn, error"},
		{"slow-log-time", "fast", "no duration"},
		{"max-deadline", "10ms", "--max-deadline 10ms is too short; want at least 1s"},
		{"max-sync-time", "25h", "at most 24h"},
		{"", "", "is not a setting"},
		{"log-level", strings.Repeat("x", 2000), "want at most 1024"},
	} {
		r := p.kvd("config", "set", c.name, c.value)
		assert.Equal(t, daemon.ExitUsage, r.code, "%s: %s", c.name, r.err)
		assert.Contains(t, r.err, c.says)
		assert.NotContains(t, r.err, "wrong usage")
		assert.Empty(t, r.out)
	}
	for _, args := range [][]string{{}, {"log-level"}, {"log-level", "debug", "more"}} {
		assert.Equal(t, daemon.ExitUsage, p.kvd(append([]string{"config", "set"}, args...)...).code, "%v", args)
	}
	assert.NotContains(t, p.log.String(), "config set")
}

func TestOnlyAnAdministratorChangesSettingsAndTheAuditLogTells(t *testing.T) {
	dir := t.TempDir()
	file, trail := filepath.Join(dir, "tokens.json"), filepath.Join(dir, "audit.jsonl")
	tokens := map[string]string{}
	for name, right := range map[string][]string{"app": {"--read", "", "--write", ""}, "ops": {"--admin"}} {
		tokens[name] = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(tokens[name], []byte(newToken(t, file, name, right...)), 0o600))
	}
	p := serve(t, filepath.Join(dir, "data"), "--tokens", file, "--audit-log", trail, "--grace", "1h")
	r := p.kvd("config", "set", "grace", "3h", "--token-file", tokens["app"])
	assert.Equal(t, exitDenied, r.code, r.err)
	assert.Equal(t, exitDenied, p.kvd("config", "set", "grace", "3h").code, "without a token")
	r = p.kvd("config", "set", "grace", "2h", "--token-file", tokens["ops"])
	assert.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "grace: 1h0m0s -> 2h0m0s")
	assert.Zero(t, p.end(syscall.SIGTERM))
	assert.Contains(t, p.log.String(), `{"grace": "2h0m0s"}`, "the stop has the new grace period")
	lines, err := os.ReadFile(trail)
	require.NoError(t, err)
	assert.Regexp(t, `"event":"admin","identity":"ops",.*"reason":"grace from 1h0m0s to 2h0m0s"`, string(lines))
	refused, err := os.ReadFile(trail + ".refused")
	require.NoError(t, err)
	assert.Contains(t, string(refused), `"event":"refused","identity":"app"`)
	assert.NotContains(t, string(lines)+string(refused), "11s")
}
