package manifest

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/kv"
)

// Versions of the formats of manifests and of CURRENT that this package reads. It writes all
// of them.
const (
	OldestFormat        = formatWithout
	NewestFormat        = manifestFormat
	OldestCurrentFormat = currentFormat
	NewestCurrentFormat = currentFormat
)

const (
	// HeadBytes is how much of a manifest FormatOf needs, in any version.
	HeadBytes = preambleBytes
	// CurrentBytes bounds the length of CURRENT.
	CurrentBytes = maxCurrent
)

// FormatOf returns the format version of a manifest, which may be one that this package does
// not know. head is the beginning of the file; name is for errors.
//
// Errors: a *kv.CorruptionError if the file is no manifest.
func FormatOf(name string, head []byte) (uint32, error) {
	if len(head) < preambleBytes {
		return 0, kv.Corruptf(name, -1, "%d bytes, too short for a manifest", len(head))
	}
	if string(head[:8]) != manifestMagic {
		return 0, kv.Corruptf(name, 0, "not a manifest: magic %q", head[:8])
	}
	if got, want := checksum(head[:12]), binary.LittleEndian.Uint32(head[12:]); got != want {
		return 0, kv.Corruptf(name, 0, "checksum of the preamble is %08x, computed %08x", want, got)
	}
	format := binary.LittleEndian.Uint32(head[8:])
	if format == 0 {
		return 0, kv.Corruptf(name, 8, "format 0 does not exist")
	}
	return format, nil
}

// CurrentFormatOf returns the format version of CURRENT, which may be one that this package
// does not know. data is the whole file; name is for errors.
//
// Errors: a *kv.CorruptionError if the file is no CURRENT.
func CurrentFormatOf(name string, data []byte) (uint32, error) {
	words, err := currentWords(name, data)
	if err != nil {
		return 0, err
	}
	format, err := strconv.ParseUint(words[1], 10, 32)
	if err != nil || format == 0 {
		return 0, kv.Corruptf(name, 0, "format %q does not exist", words[1])
	}
	return uint32(format), nil
}

// currentWords returns the words before the checksum of CURRENT, at least two.
func currentWords(file string, data []byte) ([]string, error) {
	line, ended := strings.CutSuffix(string(data), "\n")
	if !ended || len(data) > maxCurrent {
		return nil, kv.Corruptf(file, -1, "%d bytes that are not one line", len(data))
	}
	sum := strings.LastIndexByte(line, ' ') + 1
	if want := strconv.FormatUint(1<<32|uint64(checksum(data[:sum])), 16)[1:]; line[sum:] != want {
		return nil, kv.Corruptf(file, 0, "checksum is %q, computed %s", line[sum:], want)
	}
	words := strings.Split(line[:max(sum-1, 0)], " ")
	if len(words) < 2 || words[0] != currentMagic {
		return nil, kv.Corruptf(file, 0, "not a CURRENT file: %q", line)
	}
	return words, nil
}
