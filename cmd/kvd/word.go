package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvd-db/kvd/internal/escape"
)

// word is one word of a line of a script. Words are separated by spaces and tabs. A word
// that begins with a double quote ends at the next one; in it \" is a quote, \\ a backslash
// and \xNN a byte.
type word struct {
	text   string
	quoted bool // text is what the quotes meant
}

func splitWords(line string) (words []word, err error) {
	const space = " \t"
	for rest := strings.TrimLeft(line, space); rest != ""; rest = strings.TrimLeft(rest, space) {
		if rest[0] == '"' {
			w, after, err := unquote(rest[1:])
			if err != nil {
				return nil, err
			}
			if after != "" && !strings.ContainsRune(space, rune(after[0])) {
				return nil, fmt.Errorf(`want a space after the closing quote, got %q`, after)
			}
			words, rest = append(words, w), after
			continue
		}
		end := strings.IndexAny(rest, space)
		if end < 0 {
			end = len(rest)
		}
		words, rest = append(words, word{text: rest[:end]}), rest[end:]
	}
	return words, nil
}

// unquote parses a word up to its closing quote and returns the rest of the line.
func unquote(s string) (w word, after string, err error) {
	var escaped strings.Builder // as escape.Parse reads it
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			text, err := escape.Parse(escaped.String())
			return word{text: string(text), quoted: true}, s[i+1:], err
		case s[i] == '\\' && i+1 < len(s):
			if i++; s[i] == '"' {
				escaped.WriteByte('"')
				continue
			}
			escaped.WriteByte('\\')
		}
		escaped.WriteByte(s[i])
	}
	return w, "", errors.New("a quote is not closed")
}

// decodeWord returns the bytes that a word stands for. Escapes of a quoted word have been
// decoded already.
func (e *encoding) decodeWord(what string, w word) ([]byte, error) {
	if w.quoted && !e.hex && !e.base64 {
		return []byte(w.text), nil
	}
	return e.decode(what, w.text)
}

// encodeWord encodes bytes as a word of a script.
func (e *encoding) encodeWord(b []byte) string {
	text := e.encode(b, true)
	plain := e.hex || e.base64 || text == string(b) && text != "" && text[0] != '"' && !strings.Contains(text, " ")
	if plain && text != "" {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`
}
