package manifest

import (
	"fmt"
	"strconv"
	"strings"

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
	line, ended := strings.CutSuffix(string(data), "\n")
	if !ended || len(data) > maxCurrent {
		return 0, 0, kv.Corruptf(file, -1, "%d bytes that are not one line", len(data))
	}
	sum := strings.LastIndexByte(line, ' ') + 1
	if want := fmt.Sprintf("%08x", checksum(data[:sum])); line[sum:] != want {
		return 0, 0, kv.Corruptf(file, 0, "checksum is %q, computed %s", line[sum:], want)
	}
	words := strings.Split(line[:max(sum-1, 0)], " ")
	if len(words) < 2 || words[0] != currentMagic {
		return 0, 0, kv.Corruptf(file, 0, "not a CURRENT file: %q", line)
	}
	if words[1] == "0" {
		return 0, 0, kv.Corruptf(file, 0, "format 0 does not exist")
	}
	if words[1] != strconv.Itoa(currentFormat) {
		return 0, 0, fmt.Errorf("%w: %s has format %q, this version reads %d",
			kv.ErrUnsupportedVersion, file, words[1], currentFormat)
	}
	if len(words) != 5 {
		return 0, 0, kv.Corruptf(file, 0, "%d words, want 5 before the checksum", len(words))
	}
	owner, err := strconv.ParseUint(words[3], 10, 32)
	kind, manifest := ParseName(words[4])
	if err != nil || kind != FileManifest || string(encodeCurrent(uint32(owner), manifest)) != string(data) {
		return 0, 0, kv.Corruptf(file, 0, "malformed: %q", line)
	}
	return uint32(owner), manifest, nil
}
