package results

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// ReadAll reads the directories of one side of a comparison, and joins their results: runs of
// cells with the same parameters become runs of one cell. So programs can be measured in turns.
//
// It returns an error if a directory is named twice, or if the results differ in anything but
// the seed: the program, the machine, the settings of a workload or those of a store.
func ReadAll(dirs []string) (*Result, error) {
	var all *Result
	var seen []string
	for _, dir := range dirs {
		if dir == "" {
			return nil, errors.New("results: a directory has no name")
		}
		r, err := Read(dir)
		if err != nil {
			return nil, err
		}
		where, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		if where, err = filepath.Abs(where); err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		if slices.Contains(seen, where) {
			return nil, fmt.Errorf("results: %s is named twice: its runs would count twice", dir)
		}
		if seen = append(seen, where); all == nil {
			all = r
			continue
		}
		if err := all.join(r); err != nil {
			return nil, fmt.Errorf("results: %s and %s are not results of the same: %w", dirs[0], dir, err)
		}
	}
	return all, nil
}

// Machines returns in what the machines of two results differ.
func Machines(a, b *Result) []Setting {
	ea, eb := &a.Environment, &b.Environment
	return slices.DeleteFunc([]Setting{
		{"processor", ea.CPU, eb.CPU}, {"GOMAXPROCS", strconv.Itoa(ea.GOMAXPROCS), strconv.Itoa(eb.GOMAXPROCS)},
		{"kernel", ea.Kernel, eb.Kernel}, {"file system", ea.FileSystem, eb.FileSystem}, {"governor", ea.Governor, eb.Governor},
	}, func(s Setting) bool { return s.A == s.B })
}

// join adds the runs of another result.
func (r *Result) join(other *Result) error {
	switch {
	case r.Experiment != other.Experiment:
		return fmt.Errorf("kvbench %s and kvbench %s", r.Experiment, other.Experiment)
	case r.Program != other.Program:
		return fmt.Errorf("programs %q and %q", r.Program, other.Program)
	case r.Environment.Commit != other.Environment.Commit:
		return fmt.Errorf("commits %s and %s", r.Environment.Commit, other.Environment.Commit)
	case r.Environment.ProgramSum != other.Environment.ProgramSum:
		return fmt.Errorf("programs with the checksums %s and %s", r.Environment.ProgramSum, other.Environment.ProgramSum)
	case len(Machines(r, other)) > 0:
		return fmt.Errorf("machines: %s", settingsText(Machines(r, other)))
	case r.Scale != other.Scale:
		return fmt.Errorf("scales %v and %v", r.Scale, other.Scale)
	}
	r.Planned += other.Planned
	for _, c := range other.Cells {
		into := r.Cell(c.Params)
		if into == nil {
			r.Cells = append(r.Cells, c)
			continue
		}
		if settings := append(workloadSettings(into, c), targetSettings(into, c)...); len(settings) > 0 {
			return fmt.Errorf("%s: %s", c.Name(), settingsText(settings))
		}
		into.Runs = append(into.Runs, c.Runs...)
	}
	return nil
}
