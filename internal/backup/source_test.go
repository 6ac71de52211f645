package backup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestOnlyNamesOfAStoreAreAccepted(t *testing.T) {
	for _, name := range []string{"STORE", "CLOCK", "wal/000001.wal", "p-0000/CURRENT", "p-1023/MANIFEST-000007", "p-0001/000012.sst", "p-0001/000013.val"} {
		require.NoError(t, checkName(name), name)
	}
	for _, name := range []string{
		"", "/", "STORE/", "/STORE", "../STORE", "wal", "wal/", "wal/..", "wal/../STORE.wal", "wal/x", "p-0000/", "p-0000/..", "p-0000/.hidden",
		"p-0000/a/b", "p-1/CURRENT", "q-0000/CURRENT", "p-0000\\CURRENT", "p-0000/CURRENT\x00", "p-0000/a b", "./STORE", "LOCK", "BALLAST",
		"p-0000/" + string(make([]byte, 65)),
	} {
		assert.ErrorIs(t, checkName(name), kv.ErrCorrupt, "%q", name)
	}
}
