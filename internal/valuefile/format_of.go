package valuefile

import "github.com/kvd-db/kvd/internal/kv"

// Versions of the format that this package reads.
const (
	OldestFormat = formatVersion
	NewestFormat = formatVersion
)

// FooterBytes is how much of the end of a value file FormatOf needs, in any version.
const FooterBytes = maxFooterBytes

// FormatOf returns the format version of a value file, which may be one that this package does
// not know. tail is the end of the file: FooterBytes, or the whole file; name is for errors.
//
// Errors: a *kv.CorruptionError if the file is no value file.
func FormatOf(name string, tail []byte) (uint32, error) {
	_, version, reason := openEnvelope(tail)
	if reason != "" {
		return 0, kv.Corruptf(name, -1, "%s", reason)
	}
	return version, nil
}
