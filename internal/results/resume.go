package results

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Resume returns the result of a directory whose experiment ended early, so that the rest can be
// measured. planned is what would be measured anew. Runs that failed or were interrupted are
// left out.
//
// It returns an error, which names what differs, unless both are of the same experiment, with
// equal options and scale, by the same program, on the same machine. The parts of a report
// could otherwise not be compared. The cells must be equal too, unless planned has none because
// the experiment finds them while it measures.
func Resume(dir string, planned *Result) (*Result, error) {
	r, err := Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("results: %s has no result that could be continued; nothing is saved in the first minute: leave out --resume: %w", dir, err)
	}
	if err != nil {
		return nil, err
	}
	if settings := changed(r, planned); len(settings) > 0 {
		return nil, fmt.Errorf("results: %s cannot be continued, because it was measured otherwise: %s: repeat the command as it was, or leave out --resume to measure everything anew",
			dir, changedText(settings))
	}
	if err := r.readLogs(dir); err != nil {
		return nil, err
	}
	for _, c := range r.Cells {
		c.Runs = slices.DeleteFunc(c.Runs, func(run *Run) bool { return run.Error != "" || run.Interrupted })
	}
	r.Planned = planned.Planned
	return r, nil
}

// changed returns what differs between a stored result and one that is planned.
func changed(r, planned *Result) []Setting {
	switch {
	case r.Experiment != planned.Experiment:
		return []Setting{{"command", r.Experiment, planned.Experiment}} // whose options are others
	case r.Options == nil:
		return []Setting{{"options", "not recorded by the version that wrote it", "known"}}
	}
	var settings []Setting
	names := maps.Clone(r.Options)
	maps.Copy(names, planned.Options)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		settings = append(settings, Setting{"--" + name, r.Options[name], planned.Options[name]})
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	a, b := &r.Environment, &planned.Environment
	settings = append(settings,
		Setting{"scale", number(r.Scale), number(planned.Scale)},
		Setting{"commit", a.Commit, b.Commit}, Setting{"checksum of the program", a.ProgramSum, b.ProgramSum}, Setting{"compiler", a.Go, b.Go},
		Setting{"processor", a.CPU, b.CPU}, Setting{"GOMAXPROCS", strconv.Itoa(a.GOMAXPROCS), strconv.Itoa(b.GOMAXPROCS)},
		Setting{"file system", a.FileSystem, b.FileSystem},
	)
	same := func(a, b *Cell) bool { return slices.Equal(a.Params, b.Params) }
	if planned.Cells != nil && !slices.EqualFunc(r.Cells, planned.Cells, same) {
		settings = append(settings, Setting{"cells", cellsText(r), cellsText(planned)})
	}
	return slices.DeleteFunc(settings, func(s Setting) bool { return s.A == s.B })
}

// cellsText describes the cells of a result.
func cellsText(r *Result) string {
	if len(r.Cells) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d from %q to %q", len(r.Cells), r.Cells[0].Name(), r.Cells[len(r.Cells)-1].Name())
}

func changedText(settings []Setting) string {
	parts := make([]string, len(settings))
	for i, s := range settings {
		parts[i] = fmt.Sprintf("%s was %s, now it is %s", s.Name, quoted(s.A), quoted(s.B))
	}
	return strings.Join(parts, "; ")
}

// quoted marks where a value is empty.
func quoted(value string) string {
	if value == "" {
		return `""`
	}
	return value
}

// readLogs reads the logs of the median runs, which would otherwise be lost when the directory
// is written again.
func (r *Result) readLogs(dir string) error {
	for n, c := range r.Cells {
		run := c.MedianRun()
		if run == nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, logName(n)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("results: %w", err)
		}
		if i := bytes.Index(data, []byte("\nTag=")); i >= 0 {
			run.log = data[i+1:]
		}
	}
	return nil
}

// logName returns the name of the log of a cell.
func logName(cell int) string { return fmt.Sprintf("%03d.hlog", cell+1) }
