package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestLinesLookAsDocumented(t *testing.T) {
	for want, l := range map[string]line{
		`{"key":"user/1","value":"Ada","version":17}`: {Key: []byte("user/1"), Value: []byte("Ada"), Version: 17},
		`{"key":"a","value":"b","ttl_ms":1500}`:       {Key: []byte("a"), Value: []byte("b"), TTL: 1500 * time.Millisecond},
		`{"key_base64":"AP8=","value_base64":"/w=="}`: {Key: []byte{0, 0xff}, Value: []byte{0xff}},
		`{"key":"a","value":""}`:                      {Key: []byte("a")},
		`{"key":"<&>\u2028 日本","value":"a\"b\\c\nd"}`: {Key: []byte("<&>\u2028 日本"), Value: []byte("a\"b\\c\nd")},
		`{"key":"\u0000\u0001","value":"�"}`:          {Key: []byte{0, 1}, Value: []byte("\ufffd")},
	} {
		var out bytes.Buffer
		require.NoError(t, l.write(&out))
		assert.Equal(t, want+"\n", out.String())
		back, err := parseLine([]byte(want))
		require.NoError(t, err)
		assert.Equal(t, string(l.Key), string(back.Key))
		assert.Equal(t, string(l.Value), string(back.Value))
		assert.Equal(t, l.Version, back.Version)
		assert.Equal(t, l.TTL, back.TTL)
	}
	var out bytes.Buffer
	l := line{Key: []byte("a"), Value: []byte("b"), KeyOnly: true}
	require.NoError(t, l.write(&out))
	assert.Equal(t, "{\"key\":\"a\"}\n", out.String())
}

func TestALineThatIsNotUnderstoodIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		``:                       "EOF",
		`{`:                      "unexpected EOF",
		`[]`:                     "cannot unmarshal",
		`null`:                   "neither key nor key_base64",
		`{"key":"a"}`:            "neither value nor value_base64",
		`{"value":"a"}`:          "neither key nor key_base64",
		`{"key":"","value":"a"}`: "the key is empty",
		`{"key":"a","key_base64":"YQ==","value":"v"}`:          "both there",
		`{"key":"a","value":1}`:                                "cannot unmarshal",
		`{"key":"a","vlaue":"v"}`:                              "unknown field",
		`{"key":"a","value":"v"} {}`:                           "something follows",
		`{"key":"a","value_base64":"%"}`:                       "value_base64",
		`{"key":"a","value":"\ud800"}`:                         "surrogate",
		`{"key":"\\\udfff","value":"\ufffd"}`:                  "surrogate",
		`{"key":"a","value":"v","ttl_ms":0}`:                   "ttl_ms is 0",
		`{"key":"a","value":"v","ttl_ms":-5}`:                  "ttl_ms is -5",
		`{"key":"a","value":"v","ttl_ms":1.5}`:                 "cannot unmarshal",
		`{"key":"a","value":"v","ttl_ms":9223372036854775807}`: "want 1 to 9223372036854",
		"{\"key\":\"\xff\",\"value\":\"\"}":                    "not UTF-8",
	} {
		_, err := parseLine([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestAReplacementCharacterThatWasMeantIsTaken(t *testing.T) {
	for _, text := range []string{
		`{"key":"a","value":"\ufffd\uFFFD"}`,
		`{"key":"a\\ufffd�","value":"\ud83d\ude00"}`,
	} {
		_, err := parseLine([]byte(text))
		require.NoError(t, err, text)
	}
}

// FuzzLineRoundTrip: every pair of byte strings survives an export.
func FuzzLineRoundTrip(f *testing.F) {
	f.Add([]byte("key"), []byte("value"))
	f.Add([]byte{0xff, 0}, []byte("\u2028\\u2028"))
	f.Add([]byte("\xed\xa0\x80"), []byte("\ufffd"))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		l := line{Key: key, Value: value}
		var out bytes.Buffer
		require.NoError(t, l.write(&out))
		text, ended := strings.CutSuffix(out.String(), "\n")
		require.True(t, ended)
		require.NotContains(t, text, "\n", "one line")
		require.True(t, utf8.ValidString(text))
		back, err := parseLine([]byte(text))
		if len(key) == 0 {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, string(key), string(back.Key))
		require.Equal(t, string(value), string(back.Value))
	})
}

// FuzzParseLine: what is accepted is written and read back the same.
func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"key":"a","value":"b"}`))
	f.Add([]byte(`{"key_base64":"AA==","value_base64":""}`))
	f.Add([]byte(`{"key":"a","value":"b","version":3,"ttl_ms":9223372036854}`))
	f.Add([]byte(`{"key":"\ud800","value":"\ufffd"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parseLine(text)
		if err != nil {
			return
		}
		var out bytes.Buffer
		require.NoError(t, l.write(&out))
		back, err := parseLine(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
		require.NoError(t, err)
		require.Equal(t, string(l.Key), string(back.Key))
		require.Equal(t, string(l.Value), string(back.Value))
		require.Equal(t, l.TTL, back.TTL)
	})
}

// JSON spells a control character with six bytes. An import takes every line that an export writes, or
// an older one wrote; an export writes none that an older import refused.
func TestAnExportedLineOfControlCharactersIsImported(t *testing.T) {
	const older = (kv.MaxValueBytes+kv.MaxKeyBytes)/3*4 + 4096
	require.GreaterOrEqual(t, maxLine, len(`\u0000`)*(kv.MaxValueBytes+kv.MaxKeyBytes)+len(`{"key":"","value":"","ttl_ms":9223372036854}`))
	for _, size := range []int{longText, longText + 1, 15 << 20} {
		l := line{Key: []byte("zeros"), Value: make([]byte, size)} // zeros are UTF-8
		var b bytes.Buffer
		require.NoError(t, l.write(&b))
		require.LessOrEqual(t, b.Len(), older)
		require.Equal(t, size > longText, bytes.Contains(b.Bytes(), []byte("value_base64")))
		back, err := parseLine(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
		require.NoError(t, err)
		require.True(t, bytes.Equal(l.Value, back.Value))
	}
	for unit, want := range map[string]bool{"plain text ": false, "\n": true, `"`: true, "a\u2028": true, "日": false, "a word\n": false} {
		require.Equal(t, want, escapedIsLonger(bytes.Repeat([]byte(unit), longText+1)), "%q", unit)
	}
}
