package manifest

import (
	"fmt"
	"strconv"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	currentMagic  = "kvd-current"
	currentFormat = 1
	maxCurrent    = 128 // bytes; the longest line of format 1 has 79
)

// encodeCurrent returns the content of CURRENT, as the package comment shows it.
func encodeCurrent(partition uint32, manifest kv.FileNum) []byte {
	line := fmt.Sprintf("%s %d partition %d %s ", currentMagic, currentFormat, partition, ManifestName(manifest))
	return fmt.Appendf(nil, "%s%08x\n", line, checksum([]byte(line)))
}

// DecodeCurrent decodes the content of CURRENT: the partition and the manifest that it
// names. It accepts only the exact bytes that kvd writes.
//
// Errors: kv.ErrUnsupportedVersion, or a *kv.CorruptionError naming file.
func DecodeCurrent(file string, data []byte) (partition uint32, manifest kv.FileNum, err error) {
	format, err := CurrentFormatOf(file, data)
	if err != nil {
		return 0, 0, err
	}
	if format != currentFormat {
		return 0, 0, fmt.Errorf("%w: %s has format %d, this version reads %d",
			kv.ErrUnsupportedVersion, file, format, currentFormat)
	}
	words, err := currentWords(file, data)
	if err != nil {
		return 0, 0, err
	}
	if len(words) != 5 {
		return 0, 0, kv.Corruptf(file, 0, "%d words, want 5 before the checksum", len(words))
	}
	owner, err := strconv.ParseUint(words[3], 10, 32)
	kind, manifest := ParseName(words[4])
	if err != nil || kind != FileManifest || string(encodeCurrent(uint32(owner), manifest)) != string(data) {
		return 0, 0, kv.Corruptf(file, 0, "malformed: %q", data)
	}
	return uint32(owner), manifest, nil
}
