package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// plainFormat is the format of manifests without a digest, and manifestFormat of those with
	// one.
	plainFormat    = 1
	manifestFormat = 2
	// maxManifest bounds what is read: some 100 bytes for each of a million files.
	maxManifest = 128 << 20
	idLayout    = "20060102T150405.000Z"
)

// Manifest lists the files of one backup.
type Manifest struct {
	Format  int       `json:"kvd_backup"`
	ID      string    `json:"id"`    // its time, in UTC
	Store   hex64     `json:"store"` // id of the store
	Version kv.SeqNum `json:"version"`
	// Digest is a hash of the keys and values at the version, and their number, as kvd digest
	// prints them; empty: it was not computed. Since format 2.
	Digest string         `json:"digest,omitempty"`
	Files  []ManifestFile `json:"files"`
}

// ManifestFile is one file of a backup.
type ManifestFile struct {
	Name string `json:"name"` // in the data directory
	Size int64  `json:"bytes"`
	Sum  hex64  `json:"xxh64"`
}

// Bytes returns the size of all files.
func (m *Manifest) Bytes() (sum int64) {
	for i := range m.Files {
		sum += m.Files[i].Size
	}
	return sum
}

// Time returns when the backup was made.
func (m *Manifest) Time() time.Time {
	t, _ := time.Parse(idLayout, m.ID) // checked by Decode
	return t
}

// hex64 is a number that is 16 hexadecimal digits in JSON, since many readers of JSON round
// numbers of 64 bits.
type hex64 uint64

// MarshalText implements encoding.TextMarshaler.
func (h hex64) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hex64) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*h = hex64(n)
	return err
}

// IsID reports whether id is that of a backup: a time.
func IsID(id string) bool {
	t, err := time.Parse(idLayout, id)
	return err == nil && t.Format(idLayout) == id
}

type trailer struct {
	Sum hex64 `json:"xxh64"`
}

// Encode returns the bytes of the manifest, as the package comment shows them.
func (m *Manifest) Encode() ([]byte, error) { return seal(m) }

// seal returns v as JSON, followed by the checksum of that.
func seal(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return nil, err
	}
	b = append(b, '\n')
	end, err := json.Marshal(trailer{hex64(sumOf(b))})
	return append(append(b, end...), '\n'), err
}

func sumOf(b []byte) uint64 {
	h := NewSum()
	_, _ = h.Write(b) // a hash does not fail
	return h.Sum64()
}

// Decode decodes a manifest; file is for its errors.
//
// Errors: a *kv.CorruptionError, or kv.ErrUnsupportedVersion.
func Decode(file string, b []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := unseal(file, b, "kvd_backup", manifestFormat, m); err != nil {
		return nil, err
	}
	return m, nil
}

var formatOf = regexp.MustCompile(`^\{\s*"([a-z_]+)":\s*([0-9]+),`)

// sealed is what unseal decodes.
type sealed interface {
	// check returns what is wrong with a value whose checksum holds.
	check() error
}

// unseal decodes what seal returned for a value whose first field is named kind, and is the
// version of its format, of which this kvd knows those up to newest.
//
// Errors: a *kv.CorruptionError, or kv.ErrUnsupportedVersion.
func unseal(file string, b []byte, kind string, newest int, v sealed) error {
	format := formatOf.FindSubmatch(b[:min(len(b), 100)])
	if format == nil || string(format[1]) != kind {
		return kv.Corruptf(file, 0, "not a file with %s", kind)
	}
	if n, err := strconv.Atoi(string(format[2])); err != nil || n > newest {
		return fmt.Errorf("%w: %s has format %s, this kvd reads %d", kv.ErrUnsupportedVersion, file, format[2], newest)
	}
	if err := json.Unmarshal(b[:max(0, bytes.LastIndex(b, []byte(`{"xxh64"`)))], v); err != nil {
		return kv.Corruptf(file, 0, "malformed: %v", err)
	}
	if again, err := seal(v); err != nil || !bytes.Equal(again, b) {
		return kv.Corruptf(file, 0, "the contents do not have the checksum at their end, or are malformed")
	}
	if err := v.check(); err != nil {
		return kv.Corruptf(file, 0, "%v", err)
	}
	return nil
}

var digestText = regexp.MustCompile(`^[0-9a-f]{32} [0-9]{1,20}$`)

// formatWith returns the format of a manifest with a digest, or without one.
func formatWith(digest string) int {
	if digest == "" {
		return plainFormat
	}
	return manifestFormat
}

// check returns what is wrong with a manifest whose checksum holds.
func (m *Manifest) check() error {
	if m.Format != formatWith(m.Digest) {
		return fmt.Errorf("format %d with the digest %q does not exist", m.Format, m.Digest)
	}
	if m.Digest != "" && !digestText.MatchString(m.Digest) {
		return fmt.Errorf("%q is no digest", m.Digest)
	}
	if !IsID(m.ID) {
		return fmt.Errorf("the id %q is no time", m.ID)
	}
	seen := make(map[string]bool, len(m.Files))
	for i := range m.Files {
		f := &m.Files[i]
		if err := checkName(f.Name); err != nil {
			return err
		}
		if seen[f.Name] || f.Size < 0 {
			return fmt.Errorf("the file %s is listed twice, or has a negative length", f.Name)
		}
		seen[f.Name] = true
	}
	if !seen[descriptor.Name] {
		return fmt.Errorf("the backup has no file %s", descriptor.Name)
	}
	return nil
}

// readManifest reads the manifest in a file.
func readManifest(fsys vfs.FS, name string) (*Manifest, error) {
	b, err := readFile(fsys, name, maxManifest)
	if err != nil {
		return nil, err
	}
	return Decode(name, b)
}

// readFile returns the content of a file of at most limit bytes.
func readFile(fsys vfs.FS, name string, limit int64) (b []byte, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, kv.Corruptf(name, -1, "%d bytes, want at most %d", size, limit)
	}
	b = make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}
