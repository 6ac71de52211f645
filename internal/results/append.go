package results

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// AppendCSV adds rows to a file, which it makes, with a head, if need be. Rows that are there
// already, of an experiment that was resumed, are not added again.
func AppendCSV(name string, head []string, rows [][]string) (err error) {
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		rows = append([][]string{head}, rows...)
	case err != nil:
		return fmt.Errorf("results: %w", err)
	}
	there := make(map[string]bool)
	for line := range strings.Lines(string(data)) {
		there[line] = true
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(row []string) bool { return there[csvLine(row)] })
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if err := errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close()); err != nil {
		return fmt.Errorf("results: %s: %w", name, err)
	}
	return nil
}

// csvLine returns a row as a line.
func csvLine(row []string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(row) // into memory
	w.Flush()
	return b.String()
}
