package valuefile

import (
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// OpenDamaged returns a reader of a value file whose footer need not be whole. Read finds
// every value whose record verifies; Meta says nothing, and Walk and Verify are of no use.
// The reader owns f, unless OpenDamaged fails.
func OpenDamaged(f vfs.File, id kv.FileID) (*Reader, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return &Reader{file: f, identity: newIdentity(id), footer: footer{id: id, records: uint64(size)}}, nil
}
