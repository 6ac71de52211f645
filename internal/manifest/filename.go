package manifest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/kv"
)

// Names without a number in a partition's directory.
const (
	CurrentName   = "CURRENT"
	LostFoundName = "lost+found"
)

const (
	tableSuffix    = ".sst"
	valuesSuffix   = ".val"
	manifestPrefix = "MANIFEST-"
	tempSuffix     = ".tmp" // of vfs.WriteAtomic
)

// FileKind says what a name in a partition's directory is.
type FileKind uint8

// The kinds of files. The zero value is a name that kvd does not write.
const (
	FileUnknown FileKind = iota
	FileCurrent
	FileManifest
	FileTable
	FileValues
	FileLostFound
	FileTemp // left by a publication that a crash interrupted
)

func (k FileKind) String() string {
	switch k {
	case FileCurrent:
		return "current"
	case FileManifest:
		return "manifest"
	case FileTable:
		return "table"
	case FileValues:
		return "value file"
	case FileLostFound:
		return "lost+found"
	case FileTemp:
		return "temporary file"
	}
	return "unknown file"
}

// TableName returns the name of a table: 000012.sst.
func TableName(num kv.FileNum) string { return fmt.Sprintf("%06d%s", num, tableSuffix) }

// ValuesName returns the name of a value file: 000012.val.
func ValuesName(num kv.FileNum) string { return fmt.Sprintf("%06d%s", num, valuesSuffix) }

// ManifestName returns the name of a manifest: MANIFEST-000007.
func ManifestName(num kv.FileNum) string { return fmt.Sprintf("%s%06d", manifestPrefix, num) }

// ParseName returns the kind of a name, and the number of a table, a value file, a
// manifest or a manifest's temporary file. It knows only the spelling that this package
// writes: 12.sst is not 000012.sst.
func ParseName(name string) (FileKind, kv.FileNum) {
	switch name {
	case CurrentName:
		return FileCurrent, 0
	case CurrentName + tempSuffix:
		return FileTemp, 0
	case LostFoundName:
		return FileLostFound, 0
	}
	if digits, ok := strings.CutSuffix(name, tableSuffix); ok {
		if num, ok := parseNum(digits); ok && TableName(num) == name {
			return FileTable, num
		}
	}
	if digits, ok := strings.CutSuffix(name, valuesSuffix); ok {
		if num, ok := parseNum(digits); ok && ValuesName(num) == name {
			return FileValues, num
		}
	}
	if rest, ok := strings.CutPrefix(name, manifestPrefix); ok {
		digits, temp := strings.CutSuffix(rest, tempSuffix)
		num, ok := parseNum(digits)
		switch {
		case !ok || ManifestName(num) != manifestPrefix+digits:
		case temp:
			return FileTemp, num
		default:
			return FileManifest, num
		}
	}
	return FileUnknown, 0
}

// parseNum parses a decimal number with optional leading zeros.
func parseNum(digits string) (kv.FileNum, bool) {
	num, err := strconv.ParseUint(digits, 10, 64)
	return kv.FileNum(num), err == nil
}
