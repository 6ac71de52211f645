package results

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRunsThatTookTurnsAreJoined: and only runs of the same program, workload and store.
func TestRunsThatTookTurnsAreJoined(t *testing.T) {
	root := t.TempDir()
	dir := func(name string, change func(*Result)) string {
		r := noisy(1, 2, 1, 1)
		for _, c := range r.Cells {
			c.Workload = map[string]any{"keys": 1000, "seed": name}
		}
		change(r)
		require.NoError(t, Write(filepath.Join(root, name), r, nil))
		return filepath.Join(root, name)
	}
	one, two := dir("one", func(*Result) {}), dir("two", func(r *Result) { r.Cells = append(r.Cells, noisy(9, 3, 1, 1).Cells[2]) })
	r, err := ReadAll([]string{one, two})
	require.NoError(t, err)
	require.Len(t, r.Cells, 3)
	assert.Len(t, r.Cells[0].Runs, 2)
	assert.Len(t, r.Cells[2].Runs, 1)

	link := filepath.Join(root, "link")
	require.NoError(t, os.Symlink("one", link))
	for _, c := range []struct{ dir, want string }{
		{link, "named twice"},
		{filepath.Join(root, "nowhere"), "no such file"},
		{"", "no name"},
		{dir("reads", func(r *Result) { r.Experiment = "reads" }), "kvbench reads"},
		{dir("newer", func(r *Result) { r.Environment.Commit = "abc" }), "commits  and abc"},
		{dir("built", func(r *Result) { r.Environment.ProgramSum = "f00" }), "programs with the checksums  and f00"},
		{dir("peer", func(r *Result) { r.Program = "overview" }), `programs "" and "overview"`},
		{dir("larger", func(r *Result) { r.Environment.GOMAXPROCS = 8 }), "machines: GOMAXPROCS 0 and 8"},
		{dir("scaled", func(r *Result) { r.Scale = 0.5 }), "scales 0 and 0.5"},
		{dir("keys", func(r *Result) { r.Cells[1].Workload = map[string]any{"keys": 2000} }), "threads b: keys 1000 and 2000"},
		{dir("store", func(r *Result) { r.Cells[0].Target = map[string]any{"batchOps": 16} }), ""}, // the others do not know theirs
	} {
		_, err := ReadAll([]string{one, c.dir})
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
	}
}
