// Package packaging tests the files for systemd, Docker, Kubernetes, Prometheus and Grafana:
// they parse, and every flag, variable, setting, health service and metric in them exists.
package packaging

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// documents parses all YAML documents of a file.
func documents(t *testing.T, name string) (all []any) {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(read(t, name))); ; {
		var one any
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			require.NotEmpty(t, all, name)
			return all
		}
		require.NoError(t, err, name)
		all = append(all, one)
	}
}

// texts returns every string in parsed YAML or JSON.
func texts(node any) (list []string) {
	switch n := node.(type) {
	case string:
		return []string{n}
	case []any:
		for _, e := range n {
			list = append(list, texts(e)...)
		}
	case map[string]any:
		for _, e := range n {
			list = append(list, texts(e)...)
		}
	}
	return list
}

func known() (flags, variables map[string]bool) {
	flags, variables = map[string]bool{"--config": true}, map[string]bool{"KVD_CONFIG": true, "KVD_ADDR": true, "KVD_TIMEOUT": true}
	c := daemon.DefaultConfig()
	for _, s := range c.Settings() {
		flags["--"+s.Name], variables[s.Env()] = true, true
	}
	return flags, variables
}

var (
	flagPattern     = regexp.MustCompile(`--[a-z][a-z-]*`)
	variablePattern = regexp.MustCompile(`\bKVD_[A-Z_]+\b`)
)

func TestEveryFlagAndVariableExists(t *testing.T) {
	flags, variables := known()
	found := 0
	check := func(file string, words ...string) {
		for _, word := range words {
			for _, flag := range flagPattern.FindAllString(word, -1) {
				assert.True(t, flags[flag], "%s: %s", file, flag)
				found++
			}
			for _, name := range variablePattern.FindAllString(word, -1) {
				assert.True(t, variables[name], "%s: %s", file, name)
				found++
			}
		}
	}
	for _, file := range []string{"docker/compose.yaml", "kubernetes/statefulset.yaml"} {
		for _, d := range documents(t, file) {
			check(file, texts(d)...)
		}
	}
	for line := range strings.Lines(read(t, "systemd/kvd.service")) {
		if strings.HasPrefix(line, "Exec") {
			check("kvd.service", line)
		}
	}
	for line := range strings.Lines(read(t, "docker/Dockerfile")) {
		if strings.HasPrefix(line, "ENV ") || strings.HasPrefix(line, "CMD ") {
			check("Dockerfile", line)
		}
	}
	assert.Greater(t, found, 10)
}

func TestTheSettingsFileOfTheUnitIsValid(t *testing.T) {
	c := daemon.DefaultConfig()
	require.NoError(t, daemon.SetFromFile(c.Settings(), "kvd.yaml", strings.NewReader(read(t, "systemd/kvd.yaml"))))
	require.NoError(t, c.Check())
}

func TestSystemdAcceptsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("SKIPPED: NOT VERIFIED: systemd-analyze is not installed")
	}
	self, err := os.Executable() // systemd-analyze looks whether the program exists
	require.NoError(t, err)
	unit := filepath.Join(t.TempDir(), "kvd.service")
	text := read(t, "systemd/kvd.service")
	require.Equal(t, 2, strings.Count(text, "=/usr/bin/kvd "))
	require.NoError(t, os.WriteFile(unit, []byte(strings.ReplaceAll(text, "=/usr/bin/kvd ", "="+self+" ")), 0o600))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), "kvd.service", "a warning")
}

func TestTheManifestsParseAndProbeWhatExists(t *testing.T) {
	kinds := map[string]map[string]any{}
	list := documents(t, "kubernetes/kustomization.yaml")[0].(map[string]any)["resources"].([]any)
	for _, name := range list {
		for _, d := range documents(t, filepath.Join("kubernetes", name.(string))) {
			m := d.(map[string]any)
			kinds[m["kind"].(string)] = m
		}
	}
	assert.Len(t, kinds, 3)
	set := kinds["StatefulSet"]["spec"].(map[string]any)
	assert.Equal(t, kinds["Service"]["metadata"].(map[string]any)["name"], set["serviceName"])
	pod := set["template"].(map[string]any)["spec"].(map[string]any)
	assert.Equal(t, false, pod["enableServiceLinks"])
	c := daemon.DefaultConfig()
	require.ErrorContains(t, daemon.SetFromEnv(c.Settings(), []string{"KVD_PORT=tcp://10.0.0.1:7070"}), "KVD_PORT is not a setting", "or service links would do no harm")
	container := pod["containers"].([]any)[0].(map[string]any)
	probed := func(kind string) any {
		return container[kind].(map[string]any)["grpc"].(map[string]any)["service"]
	}
	assert.Equal(t, kvdpb.HealthLiveness, probed("startupProbe"))
	assert.Equal(t, kvdpb.HealthReadiness, probed("readinessProbe"))
}

// metric finds what could be a metric of kvd; kvd_ begins nothing else in these files.
var metric = regexp.MustCompile(`\bkvd_[a-z_]+\b`)

func TestEveryMetricExists(t *testing.T) {
	exposed := metricsOfAServer(t)
	maps.Copy(exposed, metricsOfANode(t))
	var dashboard any
	require.NoError(t, json.Unmarshal([]byte(read(t, "grafana/kvd.json")), &dashboard))
	found := 0
	for file, words := range map[string][]string{
		"grafana/kvd.json":          texts(dashboard),
		"prometheus/kvd.rules.yml":  texts(documents(t, "prometheus/kvd.rules.yml")[0]),
		"prometheus/prometheus.yml": texts(documents(t, "prometheus/prometheus.yml")[0]),
	} {
		for _, word := range words {
			for _, name := range metric.FindAllString(word, -1) {
				found++
				assert.True(t, exposed[name], "%s: %s", file, name)
			}
		}
	}
	assert.Greater(t, found, 30)
	for _, file := range []string{"grafana/provisioning/dashboards/kvd.yaml", "grafana/provisioning/datasources/prometheus.yaml"} {
		documents(t, file)
	}
}

// Damage and old files that are still in use are told for as long as they last, and also if they
// came and went between two scrapes.
func TestDamageAndFailedReloadsHaveAlerts(t *testing.T) {
	rules := map[string]map[string]any{}
	group := documents(t, "prometheus/kvd.rules.yml")[0].(map[string]any)["groups"].([]any)[0].(map[string]any)
	for _, r := range group["rules"].([]any) {
		rule := r.(map[string]any)
		name := rule["alert"].(string)
		assert.NotContains(t, rules, name)
		rules[name] = rule
	}
	for name, metrics := range map[string][]string{
		"KvdDamage":      {"kvd_damaged_places", "kvd_corruption_total"},
		"KvdReloadFails": {"kvd_reload_failing", "kvd_reload_failures_total"},
	} {
		require.Contains(t, rules, name)
		assert.Equal(t, metrics, metric.FindAllString(rules[name]["expr"].(string), -1), name)
		assert.NotContains(t, rules[name], "for", "it is told at once")
	}
}

// The compose file gives Prometheus the token that its configuration names, and kvd the file
// with its hash.
func TestPrometheusSignsIn(t *testing.T) {
	compose := documents(t, "docker/compose.yaml")[0].(map[string]any)
	services := compose["services"].(map[string]any)
	secretsOf := func(service string) (paths []string) {
		for _, name := range services[service].(map[string]any)["secrets"].([]any) {
			assert.Contains(t, compose["secrets"], name)
			paths = append(paths, "/run/secrets/"+name.(string))
		}
		return paths
	}
	job := documents(t, "prometheus/prometheus.yml")[0].(map[string]any)["scrape_configs"].([]any)[0].(map[string]any)
	assert.Contains(t, secretsOf("prometheus"), job["authorization"].(map[string]any)["credentials_file"])
	command := texts(services["kvd"].(map[string]any)["command"])
	at := slices.Index(command, "--tokens")
	require.Positive(t, at)
	assert.Contains(t, secretsOf("kvd"), command[at+1])
}

// writeTokens writes a file with a token for Prometheus and one for an application with a quota.
func writeTokens(t *testing.T) (file, prometheus, app string) {
	t.Helper()
	var entries []auth.Entry
	for _, i := range []auth.Identity{
		{Name: "prometheus", Monitor: true},
		{Name: "app", Read: []string{""}, Write: []string{""}, Quota: auth.Quota{Connections: 100}},
	} {
		token, id, hash := auth.NewToken()
		i.TokenID = id
		entries = append(entries, auth.Entry{Identity: i, Hash: hash})
		prometheus, app = app, token
	}
	text, err := auth.Encode(entries)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "tokens.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file, prometheus, app
}

// metricsOfAServer returns the names of the series of a server that has served a request of an
// identity with a quota. Prometheus signs in with its token.
func metricsOfAServer(t *testing.T) map[string]bool {
	t.Helper()
	c := daemon.DefaultConfig()
	c.Data, c.Listen, c.Admin = "data", "127.0.0.1:0", "127.0.0.1:0"
	c.Memory, c.FS, c.Log = 64<<20, vfs.NewMem(), zap.NewNop()
	c.Archive = filepath.Join(t.TempDir(), "archive")
	file, prometheus, app := writeTokens(t)
	c.Tokens = file
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan [2]string, 1)
	go func() {
		ended <- daemon.Run(ctx, c, func(listen, admin net.Addr) { ready <- [2]string{listen.String(), admin.String()} })
		close(ready)
	}()
	at := <-ready
	db, err := kvd.Open(at[0], kvd.WithTimeout(testwait.Left()), kvd.WithToken(app))
	require.NoError(t, err)
	require.NoError(t, db.Put(t.Context(), []byte("k"), nil))
	require.NoError(t, db.Close())
	names := scrape(t, at[1], prometheus)
	stop()
	require.NoError(t, <-ended)
	return names
}

// metricsOfANode returns the names of the series of the only voter of a cluster, which leads, and to
// which a node was added that is not there.
func metricsOfANode(t *testing.T) (names map[string]bool) {
	t.Helper()
	c := daemon.DefaultConfig()
	c.Data, c.Listen, c.Admin = "data", "127.0.0.1:0", "127.0.0.1:0"
	c.Memory, c.FS, c.Log = 64<<20, vfs.NewMem(), zap.NewNop()
	c.Cluster, c.ClusterListen = true, "127.0.0.1:0"
	node := descriptor.Node{Cluster: descriptor.NewID(), Node: 1, Members: map[uint64]string{1: "127.0.0.1:1"}}
	_, err := daemon.InitNode(c.FS, c.Data, node, 2)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan [2]string, 1)
	go func() {
		ended <- daemon.Run(ctx, c, func(listen, admin net.Addr) { ready <- [2]string{listen.String(), admin.String()} })
		close(ready)
	}()
	at := <-ready
	db, err := kvd.Open(at[0], kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	_, err = db.AddNode(t.Context(), "127.0.0.1:2", 0)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	testwait.Until(t, func() bool {
		names = scrape(t, at[1], "")
		return names["kvd_cluster_follower_lag_entries"] && names["kvd_cluster_peer_connected"]
	}, "the metrics have the node that was added")
	stop()
	require.NoError(t, <-ended)
	return names
}

// scrape returns the names of the series at an admin address.
func scrape(t *testing.T, at, token string) map[string]bool {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/metrics", http.NoBody)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	page, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	names := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 4 && words[1] == "TYPE" && words[3] == "histogram":
			names[words[2]+"_bucket"], names[words[2]+"_sum"], names[words[2]+"_count"] = true, true, true
		case len(words) == 4 && words[1] == "TYPE":
			names[words[2]] = true
		}
	}
	return names
}
