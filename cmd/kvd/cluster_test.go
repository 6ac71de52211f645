package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestClusterInit(t *testing.T) {
	dir := t.TempDir()
	members := "1=127.0.0.1:7101,2=127.0.0.1:7102,3=127.0.0.1:7103"
	first, second := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	r := command(t, "", nil, "cluster", "init", "--data", first, "--node", "1", "--members", members, "--partitions", "2")
	require.Zero(t, r.code, r.err)
	id := regexp.MustCompile("node 1 of cluster ([0-9a-f]{16}) is in").FindStringSubmatch(r.out)
	require.NotEmpty(t, id, r.out)
	assert.Contains(t, r.out, "kvd cluster init --data DIR --node 3 --cluster "+id[1]+" --members "+members+" --partitions 2\n")
	r = command(t, "", nil, "cluster", "init", "--data", second, "--node", "2", "--members", members, "--cluster", id[1], "--partitions", "2")
	require.Zero(t, r.code, r.err)
	r = command(t, "", nil, "dump", filepath.Join(second, "NODE"))
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "cluster     "+id[1]+"\n  id          2\n  knows       1 at 127.0.0.1:7101\n")

	r = command(t, "", nil, "cluster", "init", "--data", first, "--node", "1", "--members", members)
	assert.NotZero(t, r.code)
	assert.Contains(t, r.err, "is node 1 of cluster "+id[1]+" already")
}

func TestClusterInitArguments(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "letter"), nil, 0o600))
	for want, args := range map[string][]string{
		"--data is empty":                             {"--node", "1", "--members", "1=a:1"},
		"--members has 0 nodes":                       {"--data", "x", "--node", "1"},
		"--members has 8 nodes":                       {"--data", "x", "--node", "1", "--members", "1=a:1,2=a:2,3=a:3,4=a:4,5=a:5,6=a:6,7=a:7,8=a:8"},
		"want ID=HOST:PORT":                           {"--data", "x", "--node", "1", "--members", "one=a:1"},
		`"a:0" is no address`:                         {"--data", "x", "--node", "1", "--members", "1=a:0"},
		`"" is no address`:                            {"--data", "x", "--node", "1", "--members", "1"},
		"--members has node 1 twice":                  {"--data", "x", "--node", "1", "--members", "1=a:1,1=a:2"},
		"the address a:1 twice, of the nodes 1 and 2": {"--data", "x", "--node", "1", "--members", "1=a:1,2=a:1"},
		"0.0.0.0 means no single machine":             {"--data", "x", "--node", "1", "--members", "1=0.0.0.0:1"},
		"18446744073709551615 is no id of a node":     {"--data", "x", "--node", "18446744073709551615", "--members", "18446744073709551615=a:1"},
		"--node 2 is not in --members":                {"--data", "x", "--node", "2", "--members", "1=a:1"},
		"want 16 hexadecimal digits":                  {"--data", "x", "--node", "1", "--members", "1=a:1", "--cluster", "12"},
		"--partitions 9999; want at most":             {"--data", "x", "--node", "1", "--members", "1=a:1", "--partitions", "9999"},
		"holds other files":                           {"--data", dir, "--node", "1", "--members", "1=a:1"},
	} {
		r := command(t, "", nil, append([]string{"cluster", "init"}, args...)...)
		assert.Equal(t, daemon.ExitUsage, r.code, want)
		assert.Contains(t, r.err, want)
	}
}

func TestCertificatesOfNodes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	args := []string{"cert", "nodes", "--dir", dir, "--cluster", "0123456789abcdef", "--node", "1,3"}
	r := command(t, "", nil, args...)
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "--cluster-cert "+filepath.Join(dir, "node-1.pem"))
	tls, err := certificate.Open(vfs.OS, certificate.Files{
		Certificate: filepath.Join(dir, "node-3.pem"), Key: filepath.Join(dir, "node-3.key"), ClientCA: filepath.Join(dir, "ca.pem"),
	}, nil)
	require.NoError(t, err)
	_, _, err = tls.Nodes("h2", nil)
	require.NoError(t, err)

	r = command(t, "", nil, args...)
	assert.Equal(t, daemon.ExitUsage, r.code)
	assert.Contains(t, r.err, "holds certificates already")
	require.Zero(t, command(t, "", nil, append(args, "--force")...).code)
	for want, wrong := range map[string][]string{
		"--node is missing":          {"--cluster", "0123456789abcdef"},
		"ids of nodes begin at 1":    {"--cluster", "0123456789abcdef", "--node", "0"},
		"want 16 hexadecimal digits": {"--node", "1"},
	} {
		r := command(t, "", nil, append([]string{"cert", "nodes", "--dir", dir}, wrong...)...)
		assert.Equal(t, daemon.ExitUsage, r.code, want)
		assert.Contains(t, r.err, want)
	}
}
