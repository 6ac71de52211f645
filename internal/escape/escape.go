// Package escape writes keys and other bytes as text that people can read and type.
package escape

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bytes converts bytes to readable text, and Parse converts it back: printable
// characters are kept, a backslash becomes \\, every other byte \xNN.
func Bytes(b []byte) string {
	var out strings.Builder
	out.Grow(len(b))
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == '\\':
			out.WriteString(`\\`)
		case r == utf8.RuneError && size == 1, !unicode.IsPrint(r):
			for _, c := range b[:size] {
				fmt.Fprintf(&out, `\x%02x`, c)
			}
		default:
			out.Write(b[:size])
		}
		b = b[size:]
	}
	return out.String()
}

// Quote returns Bytes(b) in quotation marks, and escapes quotation marks in it.
func Quote(b []byte) string { return `"` + strings.ReplaceAll(Bytes(b), `"`, `\x22`) + `"` }

// Strings is Bytes for each of several.
func Strings(all []string) (texts []string) {
	for _, s := range all {
		texts = append(texts, Bytes([]byte(s)))
	}
	return texts
}

// Parse is the inverse of Bytes. It also accepts \xNN with capital letters, and
// escapes that Bytes would not produce.
func Parse(s string) ([]byte, error) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		rest := s[i:]
		switch {
		case rest[0] != '\\':
			out = append(out, rest[0])
			i++
		case strings.HasPrefix(rest, `\\`):
			out = append(out, '\\')
			i += 2
		case strings.HasPrefix(rest, `\x`) && len(rest) >= 4:
			c, err := strconv.ParseUint(rest[2:4], 16, 8)
			if err != nil {
				return nil, fmt.Errorf("escape %q at byte %d: want two hexadecimal digits after \\x", rest[:4], i)
			}
			out = append(out, byte(c))
			i += 4
		default:
			return nil, fmt.Errorf("escape at byte %d: want \\\\ or \\xNN after a backslash", i)
		}
	}
	return out, nil
}
