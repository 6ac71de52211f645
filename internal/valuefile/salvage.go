package valuefile

import (
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// OpenDamaged returns a reader of a value file whose footer need not be whole. Read finds
// every value whose record verifies; Meta says nothing, and Walk and Verify are of no use.
//
// The checksum of a record does not cover the store. So a file of another store, under the
// same name, may have other values in the same places. It is refused if its footer is whole: want
// is what the manifest says of the file; nil if that is not known.
//
// The reader owns f, unless OpenDamaged fails. Errors: a *kv.CorruptionError if the footer is that
// of another file; those of f.
func OpenDamaged(f vfs.File, id kv.FileID, want *kv.ValueFileMeta) (*Reader, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	r := &Reader{file: f, identity: newIdentity(id), footer: footer{id: id, records: uint64(size)}}
	tail := make([]byte, min(size, maxFooterBytes))
	if err := r.readAt(tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	b, version, reason := openEnvelope(tail)
	if reason != "" || version != formatVersion || len(b) != footerBytes {
		return r, nil
	}
	if says := decodeFooter(b); says.id != id || want != nil && says.meta() != *want {
		return nil, kv.Corruptf(f.Name(), max(size-footerBytes, 0), "the footer is that of another file")
	}
	return r, nil
}
