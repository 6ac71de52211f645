package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every module of a binary is in its document, once, and the document refers to what is in it.
func TestTheModulesOfABinaryAreListed(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.0", Path: "example.org/m/cmd/x", Main: debug.Module{Path: "example.org/m", Version: "v1.2.3"},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:aaaa"},
			{Path: "example.org/b", Version: "v2.0.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v2.0.1", Sum: "h1:bbbb"}},
		},
		Settings: []debug.BuildSetting{
			{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"},
			{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		},
	}
	d := describe("x", strings.Repeat("0", 64), info)
	assert.Equal(t, "2026-01-02T03:04:05Z", d.Creation.Created)
	assert.Contains(t, d.Packages[0].Comment, "commit 0123abcd, built for linux/arm64")
	ids, versions := map[string]bool{documentID: true}, map[string]string{}
	for _, p := range d.Packages {
		assert.False(t, ids[p.ID], p.ID)
		assert.Regexp(t, `^SPDXRef-[a-zA-Z0-9.-]+$`, p.ID)
		ids[p.ID] = true
		versions[p.Name] = p.Version
		assert.NotEmpty(t, p.Location, p.Name)
		assert.True(t, strings.HasPrefix(p.References[0].Locator, "pkg:golang/"), p.Name)
	}
	assert.Equal(t, map[string]string{
		"x": "v1.2.3", "stdlib": "1.26.0", "example.org/a": "v1.0.0", "example.org/fork": "v2.0.1",
	}, versions)
	for _, r := range d.Relationships {
		assert.True(t, ids[r.Element] && ids[r.Related], "%v", r)
	}
	require.Len(t, d.Relationships, len(d.Packages))
}

func TestTheDocumentOfABinaryIsTheSameEachTime(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	var out, again bytes.Buffer
	require.NoError(t, run(self, &out))
	require.NoError(t, run(self, &again))
	assert.Equal(t, out.String(), again.String())
	var d document
	require.NoError(t, json.Unmarshal(out.Bytes(), &d))
	assert.Equal(t, "SPDX-2.3", d.Version)
	assert.Regexp(t, `^[0-9a-f]{64}$`, d.Packages[0].Checksums[0].Value)
}

func TestWhatIsNoGoBinaryIsRefused(t *testing.T) {
	require.Error(t, run("main.go", new(bytes.Buffer)))
	require.Error(t, run("absent", new(bytes.Buffer)))
}
