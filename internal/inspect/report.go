package inspect

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// Kind is what a file is to the store.
type Kind string

// The kinds of files.
const (
	KindStore    Kind = "store"    // STORE
	KindClock    Kind = "clock"    // CLOCK
	KindLog      Kind = "wal"      // a segment of the commit log
	KindManifest Kind = "manifest" // the manifest that CURRENT names
	KindMarker   Kind = "marker"   // CURRENT
	KindDelta    Kind = "delta"    // a table of a delta
	KindBase     Kind = "base"     // a table of the base
	KindValues   Kind = "values"   // a value file
	KindLock     Kind = "lock"     // LOCK
	KindBallast  Kind = "ballast"  // BALLAST: holds space, its bytes mean nothing
	KindOther    Kind = "other"    // nothing that the store needs
)

// File is one file of a data directory, there or missed.
type File struct {
	Path  string `json:"path"` // inside the data directory
	Kind  Kind   `json:"kind"`
	Bytes int64  `json:"bytes"`
	// Status is "ok", or what is wrong and where.
	Status string `json:"status"`
	// Note says what is worth knowing but not wrong.
	Note string `json:"note,omitempty"`
	// Err is what Status spells out, nil for "ok".
	Err error `json:"-"`
}

// Report is what Check found.
type Report struct {
	Dir        string `json:"dir"`
	StoreID    string `json:"store_id"`
	Partitions int    `json:"partitions"`
	Files      []File `json:"files"`

	Tables int `json:"tables"`
	// ValueFiles is the count of value files, Garbage the bytes of values in them that
	// nothing needs any more.
	ValueFiles int    `json:"value_files,omitempty"`
	Garbage    uint64 `json:"garbage,omitempty"`
	Entries    uint64 `json:"entries"` // versions of keys in the tables, tombstones included
	Records    uint64 `json:"records"` // in the commit log
	// LastSeq is the last number that the log or a table holds.
	LastSeq kv.SeqNum `json:"last_sequence_number"`
	Bytes   int64     `json:"bytes"`
}

// Err returns everything that is wrong, joined; nil if the store is whole.
func (r *Report) Err() error {
	var errs []error
	for i := range r.Files {
		if f := &r.Files[i]; f.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Path, f.Err))
		}
	}
	return errors.Join(errs...)
}

// Damaged returns the files with something wrong.
func (r *Report) Damaged() []File {
	var damaged []File
	for _, f := range r.Files {
		if f.Err != nil {
			damaged = append(damaged, f)
		}
	}
	return damaged
}
