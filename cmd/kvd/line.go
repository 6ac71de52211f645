package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// line is one line of an export: an item as a JSON object. A key or value that
// is UTF-8 is a string, unless it is long and would be longer than in base64; any other is in base64
// under another name:
//
//	{"key":"user/1","value":"Ada","version":17}
//	{"key_base64":"AP8=","value_base64":"/w=="}
//	{"key":"session/7","value":"Ada","ttl_ms":59000}
type line struct {
	Key, Value []byte
	Version    uint64        // not written if 0; not used by an import
	TTL        time.Duration // remaining, in whole milliseconds; not written if 0
	KeyOnly    bool          // written without a value
}

// newLine returns the line of an item.
func newLine(item *kvd.Item) line {
	return line{Key: item.Key, Value: item.Value, Version: item.Version, TTL: item.TTL}
}

// lineJSON is the JSON form of a line. Pointers distinguish an empty string from a missing
// one.
type lineJSON struct {
	Key         *string `json:"key,omitempty"`
	KeyBase64   *string `json:"key_base64,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 *string `json:"value_base64,omitempty"`
	Version     uint64  `json:"version,omitempty"`
	TTLMillis   *int64  `json:"ttl_ms,omitempty"`
}

// write appends the line, with its newline, to w.
func (l *line) write(w io.Writer) error {
	return writeJSON(w, l.json())
}

func (l *line) json() lineJSON {
	out := lineJSON{Version: l.Version}
	out.Key, out.KeyBase64 = spell(l.Key)
	if !l.KeyOnly {
		out.Value, out.ValueBase64 = spell(l.Value)
	}
	if l.TTL > 0 {
		millis := l.TTL.Milliseconds()
		out.TTLMillis = &millis
	}
	return out
}

// writeJSON writes an object and a newline.
func writeJSON(w io.Writer, object any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(object)
}

func spell(b []byte) (text, encoded *string) {
	if utf8.Valid(b) && !escapedIsLonger(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

// longText is how many bytes are spelled as a string, which is easier to read, whatever its length.
const longText = 1 << 20

// escapedIsLonger reports whether more than longText bytes that are UTF-8 are longer as a JSON string
// than in base64, as those with many control characters are.
func escapedIsLonger(b []byte) bool {
	if len(b) <= longText {
		return false
	}
	length, most := 0, base64.StdEncoding.EncodedLen(len(b))
	for _, c := range b {
		switch {
		case c == '"', c == '\\', c == '\b', c == '\f', c == '\n', c == '\r', c == '\t':
			length += len(`\n`)
		case c < ' ':
			length += len(`\u0000`)
		default:
			length++
		}
	}
	// U+2028 and U+2029 have three bytes and become six.
	length += 3 * (bytes.Count(b, []byte("\u2028")) + bytes.Count(b, []byte("\u2029")))
	return length > most
}

// parseLine parses a line without its newline. Unknown fields are errors, since ignoring
// them could lose data.
func parseLine(text []byte) (l line, err error) {
	if !utf8.Valid(text) {
		return l, errors.New("not UTF-8; bytes that are not text go into key_base64 and value_base64")
	}
	var in lineJSON
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return l, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return l, errors.New("something follows the object")
	}
	if in.halfSurrogate(text) {
		return l, errors.New(`a \u escape is half of a surrogate pair, which stands for no character`)
	}
	if l.Key, err = read("key", in.Key, in.KeyBase64); err != nil {
		return l, err
	}
	if len(l.Key) == 0 {
		return l, errors.New("the key is empty; a key has at least one byte")
	}
	l.Value, err = read("value", in.Value, in.ValueBase64)
	if err != nil {
		return l, err
	}
	l.Version = in.Version
	if in.TTLMillis != nil {
		l.TTL, err = readTTL(*in.TTLMillis)
	}
	return l, err
}

func readTTL(millis int64) (time.Duration, error) {
	const longest = math.MaxInt64 / int64(time.Millisecond)
	if millis < 1 || millis > longest {
		return 0, fmt.Errorf("ttl_ms is %d; want 1 to %d, or no ttl_ms for a key that does not expire", millis, longest)
	}
	return time.Duration(millis) * time.Millisecond, nil
}

// read returns the bytes of a field that is given as text or in base64.
func read(name string, text, encoded *string) ([]byte, error) {
	switch {
	case text != nil && encoded != nil:
		return nil, fmt.Errorf("%s and %s_base64 are both there; want one of them", name, name)
	case text != nil:
		return []byte(*text), nil
	case encoded != nil:
		b, err := base64.StdEncoding.DecodeString(*encoded)
		if err != nil {
			return nil, fmt.Errorf("%s_base64: %w", name, err)
		}
		return b, nil
	}
	return nil, fmt.Errorf("neither %s nor %s_base64 is given", name, name)
}

// halfSurrogate reports whether text has an escape such as \ud800 that is no character.
// encoding/json decodes it as U+FFFD, so two keys could become one. Such a line decodes to
// more U+FFFD than it contains.
func (in *lineJSON) halfSurrogate(text []byte) bool {
	read := 0
	for _, s := range []*string{in.Key, in.Value} {
		if s != nil {
			read += strings.Count(*s, replacement)
		}
	}
	if read == 0 {
		return false
	}
	escapes := bytes.ToLower(bytes.ReplaceAll(text, []byte(`\\`), nil))
	return read > bytes.Count(text, []byte(replacement))+bytes.Count(escapes, []byte(`\ufffd`))
}

const replacement = string(utf8.RuneError)
