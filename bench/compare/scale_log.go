package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/kvd-db/kvd/bench/report"
)

// scaleSettings are what results in one table must have in common.
type scaleSettings struct {
	Commit     string        `json:"commit"`
	ValueBytes int           `json:"valueBytes"`
	Threads    int           `json:"threads"`
	Slot       time.Duration `json:"slot"`
	Memory     int64         `json:"memoryMiB"`
	Small      int64         `json:"smallMemoryMiB"`
}

func (o *scaleOptions) settings() scaleSettings {
	return scaleSettings{report.Environment("", commit).Commit, o.valueBytes, o.threads, o.slot, o.memory, o.small}
}

// scaleLine is one store in the file of results.
type scaleLine struct {
	Settings scaleSettings `json:"settings"`
	scaleResult
}

// scaleLog holds the finished stores and, if requested, a file of them.
type scaleLog struct {
	results []scaleResult
	file    *os.File
}

// openScaleLog reads the results of earlier runs. It drops an incomplete last line,
// left by a run that was killed, and rejects lines with other settings.
func openScaleLog(path string, want scaleSettings) (_ *scaleLog, err error) {
	if path == "" {
		return new(scaleLog), nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	l := &scaleLog{file: f}
	for line := range bytes.Lines(text[:whole]) {
		var parsed scaleLine
		if err := json.Unmarshal(line, &parsed); err != nil {
			return nil, fmt.Errorf("%s is no file of results: %w", path, err)
		}
		if parsed.Settings != want {
			return nil, fmt.Errorf("%s has results of %+v, not of %+v: name another file", path, parsed.Settings, want)
		}
		l.results = append(l.results, parsed.scaleResult)
	}
	if err := f.Truncate(int64(whole)); err != nil {
		return nil, err
	}
	_, err = f.Seek(int64(whole), io.SeekStart)
	return l, err
}

func (l *scaleLog) has(c scaleCase) bool {
	_, ok := findScale(l.results, c)
	return ok
}

func findScale(results []scaleResult, c scaleCase) (*scaleResult, bool) {
	i := slices.IndexFunc(results, func(r scaleResult) bool { return r.Case == c })
	if i < 0 {
		return nil, false
	}
	return &results[i], true
}

func (l *scaleLog) add(line scaleLine) error {
	l.results = append(l.results, line.scaleResult)
	if l.file == nil {
		return nil
	}
	return json.NewEncoder(l.file).Encode(line)
}

func (l *scaleLog) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
