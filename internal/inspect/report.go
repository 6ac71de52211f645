package inspect

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// Kind is the role of a file in the store.
type Kind string

// The kinds of files.
const (
	KindStore    Kind = "store"    // STORE
	KindClock    Kind = "clock"    // CLOCK
	KindNode     Kind = "node"     // NODE
	KindLog      Kind = "wal"      // a segment of the commit log, or of that of a cluster
	KindManifest Kind = "manifest" // the manifest that CURRENT names
	KindMarker   Kind = "marker"   // CURRENT
	KindDelta    Kind = "delta"    // a table of a delta
	KindBase     Kind = "base"     // a table of the base
	KindValues   Kind = "values"   // a value file
	KindLock     Kind = "lock"     // LOCK
	KindBallast  Kind = "ballast"  // BALLAST: reserves space, its bytes have no meaning
	KindOther    Kind = "other"    // not needed by the store
)

// File is one file of a data directory, present or missing.
type File struct {
	Path  string `json:"path"` // inside the data directory
	Kind  Kind   `json:"kind"`
	Bytes int64  `json:"bytes"`
	// Status is "ok", "not checked" if the file was not read because what it is needed for is
	// damaged, or the text of Err in one line.
	Status string `json:"status"`
	// Note is information that is not about damage.
	Note string `json:"note,omitempty"`
	// Err is the damage; nil if none was found.
	Err error `json:"-"`

	unchecked bool
}

// Report is what Check found.
type Report struct {
	Dir        string `json:"dir"`
	StoreID    string `json:"store_id"`
	Partitions int    `json:"partitions"`
	Files      []File `json:"files"`

	Tables int `json:"tables"`
	// ValueFiles counts the value files. Garbage is the total length of the values in
	// them that no table references.
	ValueFiles int    `json:"value_files,omitempty"`
	Garbage    uint64 `json:"garbage,omitempty"`
	Entries    uint64 `json:"entries"` // versions of keys in the tables, including tombstones
	Records    uint64 `json:"records"` // in the commit log
	// LastSeq is the highest sequence number in the log or a table.
	LastSeq kv.SeqNum `json:"last_sequence_number"`
	Bytes   int64     `json:"bytes"`
	// Unchecked counts the files that may be damaged too: see File.Status.
	Unchecked int `json:"unchecked,omitempty"`
}

// Err returns all errors, joined; nil if the store is intact.
func (r *Report) Err() error {
	var errs []error
	for i := range r.Files {
		if f := &r.Files[i]; f.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Path, f.Err))
		}
	}
	return errors.Join(errs...)
}

// Damaged returns the files with errors.
func (r *Report) Damaged() []File {
	var damaged []File
	for _, f := range r.Files {
		if f.Err != nil {
			damaged = append(damaged, f)
		}
	}
	return damaged
}
