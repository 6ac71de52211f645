package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
)

func TestALineIsSplitIntoWords(t *testing.T) {
	plain := func(text string) word { return word{text: text} }
	quoted := func(text string) word { return word{text: text, quoted: true} }
	for text, want := range map[string][]word{
		"":                    nil,
		" \t ":                nil,
		"get a":               {plain("get"), plain("a")},
		"\tput  a\t{\"b\":1}": {plain("put"), plain("a"), plain(`{"b":1}`)},
		`put a ""`:            {plain("put"), plain("a"), quoted("")},
		`"a b" "c\"d"`:        {quoted("a b"), quoted(`c"d`)},
		`"\\" "\\\"" \x00`:    {quoted(`\`), quoted(`\"`), plain(`\x00`)},
		`"\x00\xff\x22"`:      {quoted("\x00\xff\"")},
		"häuser \xff":         {plain("häuser"), plain("\xff")},
	} {
		words, err := splitWords(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, words, text)
	}
	for text, want := range map[string]string{
		`put a "b`:   "not closed",
		`put a "b\"`: "not closed",
		`put a "\`:   "not closed",
		`put a "b"c`: `want a space`,
		`put "\n" b`: "escape",
		`put "\x4"`:  "hexadecimal",
	} {
		_, err := splitWords(text)
		require.Error(t, err, text)
		if !strings.Contains(err.Error(), "escape") {
			assert.ErrorContains(t, err, want, text)
		}
	}
}

func TestALineThatIsNotUnderstoodIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"get":                      "want get KEY, here are 0 words",
		"get a b":                  "here are 2 words",
		"Get a":                    `no operation is called "Get"`,
		"put a":                    "want put KEY VALUE [TTL]",
		`put "" b`:                 "the key is empty",
		"put a b soon":             `time to live "soon"`,
		"put a b -1s":              `time to live "-1s"`,
		"delrange b a":             "ends before it starts",
		"delrange a a":             "or at once",
		`delrange a ""`:            "the end is empty; leave it out",
		"assert-version a x":       `version "x" is no number`,
		"assert-version a -1":      `version "-1" is no number`,
		`assert a "b`:              "not closed",
		"commit":                   "no operation",
		strings.Repeat("x", 10000): `xxx..."`,
	} {
		_, err := parseScript(strings.NewReader("# first\n\nget a\n"+text+"\nget b\n"), &encoding{})
		require.ErrorIs(t, err, daemon.ErrUsage, text)
		require.ErrorContains(t, err, "line 4: ", text)
		require.ErrorContains(t, err, want, text)
		assert.Less(t, len(err.Error()), 300)
	}
	_, err := parseScript(strings.NewReader("# nothing\n"), &encoding{})
	require.ErrorIs(t, err, daemon.ErrUsage)
	_, err = parseScript(strings.NewReader("get zz"), &encoding{hex: true})
	require.ErrorContains(t, err, `line 1: wrong usage: key "zz"`)
}

type brokenReader struct{}

var errBroken = errors.New("broken")

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func TestAScriptThatCannotBeReadIsAnError(t *testing.T) {
	_, err := parseScript(brokenReader{}, &encoding{})
	require.ErrorIs(t, err, errBroken)
}

// encodings are all ways to spell keys and values.
var encodings = []encoding{{}, {hex: true}, {base64: true}, {escaped: true}}

// FuzzWordRoundTrip: what is printed is a word of a script, in every encoding.
func FuzzWordRoundTrip(f *testing.F) {
	for _, text := range []string{"", "user/1", "a b", `"`, `a"b`, `\`, "\\\"\t", "\x00\xff", "#", "\u2028", "ä "} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, enc := range encodings {
			text := enc.encodeWord(b)
			words, err := splitWords("x " + text + " y")
			require.NoError(t, err)
			require.Len(t, words, 3, text)
			back, err := enc.decodeWord("key", words[1])
			require.NoError(t, err, text)
			require.Equal(t, string(b), string(back), text)
		}
	})
}

// FuzzParseScript: a script is understood, or a line is named.
func FuzzParseScript(f *testing.F) {
	f.Add("get a\nput \"a b\" 1 5s\n", byte(0))
	f.Add("delrange 61 62\nassert-version 61 3\n# x\n", byte(1))
	f.Add("assert YQ== \"\"\n", byte(2))
	f.Add("put \\x00 \\\\\nscan \"\"", byte(3))
	f.Fuzz(func(t *testing.T, text string, which byte) {
		enc := encodings[int(which)%len(encodings)]
		s, err := parseScript(strings.NewReader(text), &enc)
		if err != nil {
			require.ErrorIs(t, err, daemon.ErrUsage)
			return
		}
		last := 0
		for _, op := range s {
			require.Greater(t, op.line, last, "an operation a line")
			require.NotNil(t, op.run)
			last = op.line
		}
		require.LessOrEqual(t, last, strings.Count(text, "\n")+1)
	})
}

func TestHelpNamesEveryOperation(t *testing.T) {
	r := command(t, "", nil, "txn", "--help")
	require.Zero(t, r.code)
	for _, v := range verbs {
		assert.Contains(t, r.out, fmt.Sprintf("\n  %s %s\n", v.name, v.takes))
	}
}
