package audit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

// TestATornLineSpoilsNoOther: a power cut, or a kill in the middle of a write, left half a line.
func TestATornLineSpoilsNoOther(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, vfs.WriteAtomic(fsys, "audit", []byte(`{"time":"2026-01-02T03:04:05.678Z","event":"sign`)))
	l, err := Open(fsys, "audit", DefaultMaxBytes, func(err error) { t.Error(err) })
	require.NoError(t, err)
	l.Add(Event{Kind: Admin, Identity: "root", Peer: "10.0.0.1:1", Method: "Drop"})
	require.NoError(t, l.Close())
	text, err := vfs.ReadSmall(fsys, "audit", 1<<20)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var e Event
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &e), "the line of the administrator: %s", text)
	assert.Equal(t, "root", e.Identity)
}
