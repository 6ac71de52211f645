package results

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// AppendCSV adds rows to a file, which it makes, with a head, if need be.
func AppendCSV(name string, head []string, rows [][]string) (err error) {
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		rows = append([][]string{head}, rows...)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if err := errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close()); err != nil {
		return fmt.Errorf("results: %s: %w", name, err)
	}
	return nil
}
