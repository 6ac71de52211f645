package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// lineReport writes a run as lines of JSON: one an interval, and at the end one
// with the single member "summary". Runs may share a file: each appends.
type lineReport struct {
	encoder *json.Encoder
	file    io.Closer // nil if no report was asked for
}

func openReport(path string) (*lineReport, error) {
	if path == "" {
		return &lineReport{encoder: json.NewEncoder(io.Discard)}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &lineReport{encoder: json.NewEncoder(f), file: f}, nil
}

func (r *lineReport) line(l workload.Line) error { return r.encoder.Encode(l) }

func (r *lineReport) sample(of trialLabel, s loadgen.Sample) error {
	return r.encoder.Encode(struct {
		trialLabel
		loadgen.Sample
	}{of, s})
}

func (r *lineReport) summary(s any) error {
	return r.encoder.Encode(struct {
		Summary any `json:"summary"`
	}{s})
}

func (r *lineReport) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
