package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvd-db/kvd/internal/inspect"
)

// word is one word of a line of a script. The words of a line stand apart by
// spaces and tabs. One that begins with a double quote ends with the next, and
// \" in it is a quote, \\ a backslash and \xNN a byte.
type word struct {
	text   string
	quoted bool // text is what the quotes meant
}

func splitWords(line string) (words []word, err error) {
	const space = " \t"
	for rest := strings.TrimLeft(line, space); rest != ""; rest = strings.TrimLeft(rest, space) {
		if rest[0] == '"' {
			w, behind, err := unquote(rest[1:])
			if err != nil {
				return nil, err
			}
			if behind != "" && !strings.ContainsRune(space, rune(behind[0])) {
				return nil, fmt.Errorf(`want a space after the quote, here is %q`, behind)
			}
			words, rest = append(words, w), behind
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

// unquote reads a word up to its closing quote and returns the rest.
func unquote(s string) (w word, behind string, err error) {
	var escaped strings.Builder // as inspect.Unescape reads it
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			text, err := inspect.Unescape(escaped.String())
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

// decodeWord returns the bytes that a word stands for. Quotes have taken care of
// escapes already.
func (e *encoding) decodeWord(what string, w word) ([]byte, error) {
	if w.quoted && !e.hex && !e.base64 {
		return []byte(w.text), nil
	}
	return e.decode(what, w.text)
}

// encodeWord spells bytes as a word of a script.
func (e *encoding) encodeWord(b []byte) string {
	text := e.encode(b, true)
	plain := e.hex || e.base64 || text == string(b) && text != "" && text[0] != '"' && !strings.Contains(text, " ")
	if plain && text != "" {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`
}
