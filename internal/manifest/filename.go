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
	manifestPrefix = "MANIFEST-"
	tempSuffix     = ".tmp" // of vfs.WriteAtomic
)

// FileKind is what a name in a partition's directory stands for.
type FileKind uint8

// The kinds of files. The zero value is a name that nothing here writes.
const (
	FileUnknown FileKind = iota
	FileCurrent
	FileManifest
	FileTable
	FileLostFound
	FileTemp // left by a publication that a crash cut short
)

// TableName returns the name of a table: 000012.sst.
func TableName(num kv.FileNum) string { return fmt.Sprintf("%06d%s", num, tableSuffix) }

// ManifestName returns the name of a manifest: MANIFEST-000007.
func ManifestName(num kv.FileNum) string { return fmt.Sprintf("%s%06d", manifestPrefix, num) }

// ParseName tells what a name stands for, and the number of a table, a manifest
// or a manifest's temporary file. Only the spelling that this package writes is
// known: 12.sst is not 000012.sst.
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

// parseNum reads a number as strconv writes it, zeros in front allowed.
func parseNum(digits string) (kv.FileNum, bool) {
	num, err := strconv.ParseUint(digits, 10, 64)
	return kv.FileNum(num), err == nil
}
