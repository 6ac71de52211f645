package repair

import (
	"bytes"

	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/internal/kv"
)

// ReportVersion is the version of the JSON form of a Report.
const ReportVersion = 1

// Report says what a repair found, kept and lost.
type Report struct {
	Version    int    `json:"version"` // ReportVersion
	Source     string `json:"source"`
	Target     string `json:"target"`
	StoreID    string `json:"store_id"`
	Partitions int    `json:"partitions"`
	// Files lists the files of the damaged store, except for those that are no part of it.
	Files []File `json:"files"`
	// Losses covers everything that may be missing in the new store. None: nothing is.
	Losses []Loss `json:"losses"`
	// Notes are what else a reader of the new store should know.
	Notes []string `json:"notes"`
	// BackupVersion is the version of the backup from which lost ranges of keys were filled; 0:
	// none was given. Filled is how many entries of it are in the new store.
	BackupVersion kv.SeqNum `json:"backup_version,omitempty"`
	Filled        uint64    `json:"filled,omitempty"`

	// InPlace is there if the store was repaired where it is, or that was planned. Target is then
	// Source, and what the losses say is missing in the new store is missing in this one.
	InPlace *InPlaceReport `json:"in_place,omitempty"`

	Entries uint64    `json:"entries"` // in the tables of the new store: versions of keys, tombstones included
	Records uint64    `json:"records"` // in its log
	LastSeq kv.SeqNum `json:"last_sequence_number"`
}

// InPlaceReport is what a Report says only of a repair in place.
type InPlaceReport struct {
	Done     bool   `json:"done"`             // false: this is what the repair would do
	Aside    string `json:"aside,omitempty"`  // the directory with the files that were replaced
	Replaced int    `json:"replaced"`         // tables
	Hidden   uint64 `json:"hidden,omitempty"` // keys of which older tables have a version, hidden one by one
	Ranges   int    `json:"ranges,omitempty"` // of keys in which older versions are hidden as a whole
}

// What was done with a file.
const (
	Copied   = "copied"   // whole
	Salvaged = "salvaged" // what verifies is in the new store
	Merged   = "merged"   // whole, and merged into new files because others were damaged
	Lost     = "lost"     // nothing of it is in the new store
	Unused   = "unused"   // the store did not need it

	Kept      = "kept"      // in place: unchanged
	Rewritten = "rewritten" // in place: a whole table, replaced because of values that it points to
)

// File is one file of the damaged store.
type File struct {
	Path   string   `json:"path"` // inside its directory
	Bytes  int64    `json:"bytes"`
	Action string   `json:"action"`
	Damage []Damage `json:"damage,omitempty"`
	// Entries and Blocks count what was read of a damaged table.
	Entries uint64 `json:"entries,omitempty"`
	Blocks  uint64 `json:"blocks,omitempty"`
}

// Damage is a damaged part of a file.
type Damage struct {
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"` // 0: unknown, or the file is missing
	Reason string `json:"reason"`
}

// Loss describes writes that may be missing in the new store: those to keys of a partition
// from FirstKey to LastKey, with versions from FirstVersion to LastVersion, all included. A
// key in it may show an older value, and a key that was deleted may be back.
type Loss struct {
	Partition int `json:"partition"`
	// FirstKey and LastKey are absent if that end is not known: then all keys up to there
	// are meant.
	FirstKey     Key       `json:"first_key,omitempty"`
	LastKey      Key       `json:"last_key,omitempty"`
	FirstVersion kv.SeqNum `json:"first_version"`
	LastVersion  kv.SeqNum `json:"last_version"`
	// Entries is how many writes at most are missing; 0: not known.
	Entries uint64 `json:"entries,omitempty"`
	File    string `json:"file"`
	Reason  string `json:"reason"`
}

// Covers reports whether the loss may concern a write.
func (l *Loss) Covers(partition int, key []byte, version kv.SeqNum) bool {
	return l.Partition == partition && l.FirstVersion <= version && version <= l.LastVersion &&
		bytes.Compare(l.FirstKey, key) <= 0 && (l.LastKey == nil || bytes.Compare(key, l.LastKey) <= 0)
}

// Covers reports whether a write may be missing in the new store.
func (r *Report) Covers(partition int, key []byte, version kv.SeqNum) bool {
	for i := range r.Losses {
		if r.Losses[i].Covers(partition, key, version) {
			return true
		}
	}
	return false
}

// Lost reports whether anything may be missing in the new store.
func (r *Report) Lost() bool { return len(r.Losses) > 0 }

// Damaged returns how many files are damaged or missing.
func (r *Report) Damaged() (n int) {
	for i := range r.Files {
		if len(r.Files[i].Damage) > 0 {
			n++
		}
	}
	return n
}

// Key is a key that is readable in JSON: see package escape.
type Key []byte

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) { return []byte(escape.Bytes(k)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(text []byte) (err error) {
	*k, err = escape.Parse(string(text))
	return err
}

func (k Key) String() string { return escape.Bytes(k) }
