package manifest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestParseNameUndoesTheNames(t *testing.T) {
	for _, num := range []kv.FileNum{1, 12, 999_999, 1_000_000, math.MaxUint64} {
		for name, want := range map[string]FileKind{
			TableName(num):             FileTable,
			ValuesName(num):            FileValues,
			ManifestName(num):          FileManifest,
			ManifestName(num) + ".tmp": FileTemp,
		} {
			kind, got := ParseName(name)
			assert.Equal(t, want, kind, name)
			assert.Equal(t, num, got, name)
		}
	}
	assert.Equal(t, "000012.sst", TableName(12))
	assert.Equal(t, "000012.val", ValuesName(12))
	assert.Equal(t, "MANIFEST-000007", ManifestName(7))
}

func TestParseNameKnowsOneSpelling(t *testing.T) {
	for name, want := range map[string]FileKind{
		"CURRENT": FileCurrent, "CURRENT.tmp": FileTemp, "lost+found": FileLostFound,
		"": FileUnknown, "current": FileUnknown, "CURRENT.bak": FileUnknown, "core.1234": FileUnknown,
		"12.sst": FileUnknown, "0000012.sst": FileUnknown, "+00012.sst": FileUnknown, "-00012.sst": FileUnknown,
		".sst": FileUnknown, "000012.sst.tmp": FileUnknown, "12.val": FileUnknown, "000012.val.tmp": FileUnknown, "000012.SST": FileUnknown,
		"MANIFEST-": FileUnknown, "MANIFEST-7": FileUnknown, "MANIFEST-0x0007": FileUnknown, "MANIFEST-000007.bak": FileUnknown,
		"99999999999999999999999.sst": FileUnknown,
	} {
		kind, num := ParseName(name)
		assert.Equal(t, want, kind, name)
		assert.Zero(t, num, name)
	}
}
