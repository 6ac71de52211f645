package backup

import (
	"context"
	"fmt"
	"hash"
	"io"
	"path"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
)

// File is one file of a consistent state of a store.
type File struct {
	Name string // in the data directory, with slashes: p-0003/000012.sst
	Size int64
}

// Info describes a consistent state of a store.
type Info struct {
	StoreID uint64
	Version kv.SeqNum // every write up to this number is in it, and no other
	Files   []File
}

// Source is a consistent state of a store, the files of which can be read while it is open.
// It is used by one goroutine.
type Source interface {
	Info() Info
	// Fetch returns the checksum of a file and its content. The content is nil if the
	// checksum is among known. It must be read to its end, or closed if it is an io.Closer,
	// before the next Fetch.
	//
	// Errors: a *kv.CorruptionError if the file does not hold what the store wrote.
	Fetch(ctx context.Context, name string, known []uint64) (sum uint64, content io.Reader, err error)
}

// closeContent closes what Fetch returned, if it is a file.
func closeContent(content io.Reader) error {
	if c, ok := content.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// NewSum returns the checksum of files: xxHash64. It detects what disks, networks and
// interrupted copies do to files: of two different files of one name, one pair in 2^64 has
// the same. It does not detect a file that was constructed to have a given checksum, so a
// backup must be as well protected against strangers as the store.
func NewSum() hash.Hash64 { return xxhash.New() }

// checkName returns an error unless name is that of a file which a store consists of. Names
// come from streams and manifests, and become paths.
func checkName(name string) error {
	dir, base := path.Split(name)
	valid := false
	switch dir {
	case "":
		valid = base == descriptor.Name || base == descriptor.ClockName
	case descriptor.LogName + "/":
		valid = plain(base) && strings.HasSuffix(base, ".wal")
	default:
		_, isPartition := descriptor.ParsePartition(strings.TrimSuffix(dir, "/"))
		valid = isPartition && plain(base)
	}
	if !valid {
		return fmt.Errorf("%w: %q is not the name of a file of a store", kv.ErrCorrupt, name)
	}
	return nil
}

// plain reports whether a name has only the characters of names that kvd writes.
func plain(base string) bool {
	for _, c := range []byte(base) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
		case c == '.' && base[0] != '.':
		default:
			return false
		}
	}
	return base != "" && len(base) <= 64
}
