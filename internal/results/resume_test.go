package results

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// planOf returns what is planned by the command that measured a result.
func planOf(r *Result) *Result {
	planned := *r
	planned.Cells, planned.Options = nil, map[string]string{"threads": "1", "keys": "10"}
	for _, c := range r.Cells {
		planned.Cells = append(planned.Cells, &Cell{Params: c.Params})
	}
	return &planned
}

// TestResumeKeepsWhatIsComplete: with the log of the median run, which no JSON has. Runs that
// failed or were interrupted are left out.
func TestResumeKeepsWhatIsComplete(t *testing.T) {
	r, dir := measured(t), t.TempDir()
	planned := planOf(r)
	planned.Planned, r.Options = 4, planned.Options
	require.NoError(t, Write(dir, r, nil))
	log, err := os.ReadFile(filepath.Join(dir, "001.hlog"))
	require.NoError(t, err)

	back, err := Resume(dir, planned)
	require.NoError(t, err)
	assert.Equal(t, 2, back.Measured())
	assert.Equal(t, 4, back.Planned)
	assert.False(t, back.Complete())
	unknown := *planned
	unknown.Cells = nil // the experiment finds them
	found, err := Resume(dir, &unknown)
	require.NoError(t, err)
	assert.Equal(t, 2, found.Measured())
	require.NoError(t, Write(dir, back, nil))
	again, err := os.ReadFile(filepath.Join(dir, "001.hlog"))
	require.NoError(t, err)
	assert.Equal(t, string(log), string(again))

	for _, run := range []*Run{{Trial: &loadgen.Trial{Error: "the server is gone"}}, {Trial: &loadgen.Trial{Interrupted: true}}} {
		back.Cells[0].Runs = append(back.Cells[0].Runs[:2:2], run)
		require.NoError(t, Write(dir, back, nil))
		kept, err := Resume(dir, planned)
		require.NoError(t, err)
		assert.Equal(t, 2, kept.Measured())
	}
}

func TestResumeSaysWhatDiffers(t *testing.T) {
	r, dir := measured(t), t.TempDir()
	r.Options = planOf(r).Options
	require.NoError(t, Write(dir, r, nil))
	for says, change := range map[string]func(*Result){
		"--threads was 1, now it is 4; commit was abc, now it is def": func(p *Result) {
			p.Options["threads"], p.Environment.Commit = "4", "def"
		},
		`--mixes was "", now it is BALANCED`:                       func(p *Result) { p.Options["mixes"] = "BALANCED" },
		`--keys was 10, now it is ""`:                              func(p *Result) { delete(p.Options, "keys") },
		"scale was 1, now it is 0.5":                               func(p *Result) { p.Scale = 0.5 },
		`checksum of the program was "", now it is 7`:              func(p *Result) { p.Environment.ProgramSum = "7" },
		`compiler was "", now it is go2`:                           func(p *Result) { p.Environment.Go = "go2" },
		"processor was a processor, now it is another":             func(p *Result) { p.Environment.CPU = "another" },
		"GOMAXPROCS was 2, now it is 3":                            func(p *Result) { p.Environment.GOMAXPROCS = 3 },
		"file system was ext4, now it is tmpfs":                    func(p *Result) { p.Environment.FileSystem = "tmpfs" },
		"command was run, now it is reads: repeat the command":     func(p *Result) { p.Experiment = "reads"; p.Options = map[string]string{"other": "1"} },
		`cells was 1 from "mix half and half, threads 1" to "mix `: func(p *Result) { p.Cells[0] = &Cell{Params: []Param{{"mix", "x"}}} },
		", now it is none":                                         func(p *Result) { p.Cells = []*Cell{} },
	} {
		planned := planOf(r)
		change(planned)
		_, err := Resume(dir, planned)
		assert.ErrorContains(t, err, says)
		assert.ErrorContains(t, err, "leave out --resume")
	}
	r.Options = nil
	require.NoError(t, Write(dir, r, nil))
	_, err := Resume(dir, planOf(r))
	assert.ErrorContains(t, err, "options was not recorded by the version that wrote it")
}

func TestResumeNeedsAWholeResult(t *testing.T) {
	r, dir := measured(t), t.TempDir()
	r.Options = planOf(r).Options
	_, err := Resume(dir, planOf(r))
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "has no result that could be continued")

	require.NoError(t, Write(dir, r, nil))
	log := filepath.Join(dir, "001.hlog")
	require.NoError(t, os.Remove(log))
	back, err := Resume(dir, planOf(r))
	require.NoError(t, err, "not every run has a log")
	require.NoError(t, Write(dir, back, nil))
	require.NoError(t, os.Mkdir(log, 0o755))
	_, err = Resume(dir, planOf(r))
	require.Error(t, err)
	assert.ErrorContains(t, err, "001.hlog")

	require.NoError(t, os.WriteFile(filepath.Join(dir, ResultFile), []byte("{"), 0o644))
	_, err = Resume(dir, planOf(r))
	assert.ErrorContains(t, err, "is not a result of kvbench")
}

// TestRowsAreAppendedOnce: those of an experiment that was resumed.
func TestRowsAreAppendedOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s.csv")
	head := []string{"began", "batch"}
	require.NoError(t, AppendCSV(name, head, [][]string{{"1", "a,b"}}))
	require.NoError(t, AppendCSV(name, head, [][]string{{"1", "a,b"}, {"1", "none"}}))
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "began,batch\n1,\"a,b\"\n1,none\n", string(data))
	assert.Error(t, AppendCSV(t.TempDir(), head, nil), "a directory")
}
