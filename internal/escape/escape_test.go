package escape

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEscapeShowsTextAsItIsAndTheRestAsHex(t *testing.T) {
	for in, want := range map[string]string{
		"":                  "",
		"user/1":            "user/1",
		"a b":               "a b",
		"häuser 日本":         "häuser 日本",
		"\x00\x01\xff":      `\x00\x01\xff`,
		"tab\tnewline\n":    `tab\x09newline\x0a`,
		`back\slash`:        `back\\slash`,
		`\x41`:              `\\x41`,
		"cut rune \xe6\x97": `cut rune \xe6\x97`,
		"\u202etrick":       `\xe2\x80\xaetrick`,
		"\ufffd":            "\ufffd",
	} {
		assert.Equal(t, want, Bytes([]byte(in)))
		back, err := Parse(want)
		require.NoError(t, err)
		assert.Equal(t, in, string(back))
	}
}

func TestUnescapeSaysWhereAnEscapeIsWrong(t *testing.T) {
	for in, want := range map[string]string{
		`abc\`:   "byte 3",
		`\n`:     "byte 0",
		`a\x4`:   "byte 1",
		`aa\xzz`: "byte 2",
	} {
		_, err := Parse(in)
		require.ErrorContains(t, err, want, in)
	}
}

func FuzzBytes(f *testing.F) {
	f.Add([]byte("plain"))
	f.Add([]byte("\\x00\x00\xff\u00e4"))
	f.Fuzz(func(t *testing.T, b []byte) {
		escaped := Bytes(b)
		require.True(t, utf8.ValidString(escaped))
		back, err := Parse(escaped)
		require.NoError(t, err)
		require.Equal(t, string(b), string(back))
	})
}
