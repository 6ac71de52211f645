package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
)

func writeConfig(t *testing.T, text string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "kvd.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestAServerTakesItsSettingsFromAFile(t *testing.T) {
	file := writeConfig(t, "slow-log-entries: 7\nmemory: 1GiB\n")
	p := serve(t, t.TempDir(), "--config", file) // which also sets --memory 64MiB
	p.must("put", "a", "1")
	assert.Contains(t, p.log.String(), "slow-log-entries=7 ("+file+":1)")
	assert.Contains(t, p.log.String(), "memory=64MiB (--memory)")
}

func TestConfigCheckFindsWhatServeWouldRefuse(t *testing.T) {
	r := command(t, "", []string{"KVD_MEMORY=1GiB"}, "config", "check", "--config", writeConfig(t, "grace: 20s"))
	assert.Equal(t, result{"ok\n", "", 0}, r)
	for text, want := range map[string]string{
		"memroy: 1GiB":        "did you mean memory?",
		"memory: 1KiB":        "is too little",
		"listen: 0.0.0.0:1":   "--insecure-allow-remote",
		"max-sync-time: 10ms": "at least 1s",
		"config: other.yaml":  "config is not a setting",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		file := writeConfig(t, text)
		for _, args := range [][]string{{"config", "check"}, {"serve", "--data", dir}} {
			r := command(t, "", []string{"KVD_CONFIG=" + file}, args...)
			assert.Equal(t, 64, r.code, "%v %s", args, text)
			assert.Contains(t, r.err, want, "%v %s", args, text)
			assert.Empty(t, r.out)
		}
		assert.NoDirExists(t, dir)
	}
	r = command(t, "", nil, "config", "check", "--config", "/nonexistent/kvd.yaml")
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "/nonexistent/kvd.yaml: no such file")
	assert.Equal(t, 64, command(t, "", nil, "config", "check", "--config", t.TempDir()).code, "a directory")
}

func TestConfigShowTellsWhereEachValueComesFrom(t *testing.T) {
	file := writeConfig(t, "linger: 1ms\ngrace: 20s\n")
	r := command(t, "", []string{"KVD_GRACE=30s"}, "config", "show", "--config", file, "--dev")
	require.Zero(t, r.code, r.err)
	from := map[string]string{}
	for line := range strings.Lines(r.out) {
		words := strings.Fields(line)
		require.Len(t, words, 3, line)
		from[words[0]] = words[1] + " " + words[2]
	}
	assert.Equal(t, "1ms "+file+":1", from["linger"])
	assert.Equal(t, "30s KVD_GRACE", from["grace"])
	assert.Equal(t, "true --dev", from["dev"])
	assert.Equal(t, "auto default", from["memory"])

	r = command(t, "", nil, "config", "show", "-o", "json", "--linger", "1ms")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, `{"name":"linger","value":"1ms","default":"0s","from":"--linger"}`+"\n")
	assert.Equal(t, 64, command(t, "", nil, "config", "show", "-o", "xml").code)
}

// The file that show prints gives the settings that it showed.
func TestConfigShowPrintsAFileThatServeTakes(t *testing.T) {
	args := []string{"config", "show", "--linger", "1ms", "--data", `a "quoted" # place`, "--durability", "memory"}
	asked := command(t, "", nil, append(args, "-o", "yaml")...)
	require.Zero(t, asked.code, asked.err)
	file := writeConfig(t, asked.out)
	values := func(r result) (list []string) {
		require.Zero(t, r.code, r.err)
		for line := range strings.Lines(r.out) {
			line, _, _ = strings.Cut(line, `,"from"`)
			list = append(list, line)
		}
		return list
	}
	want := values(command(t, "", nil, append(args, "-o", "json")...))
	assert.Equal(t, want, values(command(t, "", nil, "config", "show", "--config", file, "-o", "json")))
	all := strings.ReplaceAll("\n"+asked.out, "\n# ", "\n")
	assert.Equal(t, want, values(command(t, "", nil, "config", "show", "--config", writeConfig(t, all), "-o", "json")),
		"every line that is a comment is a valid one too")
}

func TestConfigDocsNameEverySetting(t *testing.T) {
	docs, show := command(t, "", nil, "config", "docs"), command(t, "", nil, "config", "show")
	require.Zero(t, docs.code, docs.err)
	assert.Equal(t, strings.Count(show.out, "\n")-1, strings.Count(docs.out, "\n")-2)
	assert.Contains(t, docs.out, "| `max-sync-time` | `KVD_MAX_SYNC_TIME` | duration | `20s` | yes |")
	assert.Contains(t, docs.out, "| `log-level` | `KVD_LOG_LEVEL` | debug\\|info\\|warn\\|error | `info` | yes |")
}

func TestLiveSettingsFollowTheFile(t *testing.T) {
	file := writeConfig(t, "slow-log-time: 1h\nlinger: 1ms\nslow-log-hide-keys: false\n")
	p := serve(t, t.TempDir(), "--config", file, "--slow-log-hide-keys")
	p.must("put", "key", "1")
	reload := func(text, said string) string {
		before := len(p.log.String())
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		testwait.Until(t, func() bool { return strings.Contains(p.log.String()[before:], said) })
		return p.log.String()[before:]
	}

	log := reload("slow-log-time: 1ns\nlinger: 2ms\nslow-log-hide-keys: false\n", "files were read again")
	assert.Contains(t, log, `a setting changed  {"setting": "slow-log-time", "from": "1h0m0s", "to": "1ns"}`)
	assert.Contains(t, log, `this setting needs a restart  {"setting": "linger", "from": "1ms", "to": "2ms"}`)
	assert.NotContains(t, log, "hide-keys", "a flag takes precedence")
	p.must("put", "key", "2")
	assert.Contains(t, p.must("slowlog"), "requests of 1ns or longer")
	assert.NotContains(t, p.must("slowlog", "-o", "json"), `"key":"key"`)

	log = reload("slow-log-time: 2h\nmemroy: 1GiB\n", "all settings stay as they are")
	assert.Contains(t, log, "did you mean memory?")
	assert.Contains(t, p.page("/metrics"), "\nkvd_reload_failing 1\n")
	log = reload("slow-log-time: 2h\nmemory: 1GiB\nmax-deadline: 10ms\n", "all settings stay as they are")
	assert.Contains(t, log, "at least 1s")
	assert.Contains(t, p.must("slowlog"), "requests of 1ns or longer")

	reload("slow-log-time: 2h\nlog-level: warn\n", `"log-level"`)
	assert.Contains(t, p.must("slowlog"), "requests of 2h0m0s or longer")
	assert.Contains(t, p.page("/metrics"), "\nkvd_reload_failing 0\n")
	assert.Contains(t, p.page("/metrics"), "\nkvd_reload_failures_total 2\n")
	log = reload("slow-log-time: 1h\nlog-level: info\nlinger: 1ms\n", "files were read again")
	assert.NotContains(t, log, "a setting changed", "the level was warn until then")
	assert.Contains(t, p.must("slowlog"), "requests of 1h0m0s or longer")
	assert.Zero(t, p.end(syscall.SIGTERM))
}
