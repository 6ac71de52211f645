package report

import (
	"encoding/json"
	"os"
)

// Lines is a new file of JSON lines. The zero value writes nothing.
type Lines struct {
	file *os.File
	json *json.Encoder
}

// CreateLines creates the file, which must not exist; without a name it writes nothing.
func CreateLines(name string) (Lines, error) {
	if name == "" {
		return Lines{}, nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return Lines{}, err
	}
	return Lines{f, json.NewEncoder(f)}, nil
}

// Add writes a line.
func (l *Lines) Add(v any) error {
	if l.file == nil {
		return nil
	}
	return l.json.Encode(v)
}

// Close closes the file.
func (l *Lines) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
