package server

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// The token is part of the protocol between two versions of the server.
func TestPageTokenIsPinned(t *testing.T) {
	r := kv.Range{Start: []byte("a"), End: []byte("c")}
	assert.Equal(t, "AWJ4k_GlLg", encodePageToken(r, []byte("bx")))
}

func TestPageTokenOfADamagedOrForeignScanIsRefused(t *testing.T) {
	r := kv.Range{Start: []byte("a"), End: []byte("c")}
	token := encodePageToken(r, []byte("bx"))
	rest, err := decodePageToken(r, token, kv.DefaultLimits)
	require.NoError(t, err)
	assert.Equal(t, kv.Range{Start: []byte("bx\x00"), End: []byte("c")}, rest)

	for name, test := range map[string]struct {
		r     kv.Range
		token string
	}{
		"another start":    {kv.Range{Start: []byte("b"), End: []byte("c")}, token},
		"another end":      {kv.Range{Start: []byte("a")}, token},
		"shifted":          {kv.Range{Start: []byte("ac")}, encodePageToken(kv.Range{Start: []byte("a"), End: []byte("c")}, []byte("bx"))},
		"cut":              {r, token[:len(token)-1]},
		"changed":          {r, "B" + token[1:]},
		"empty key":        {r, encodePageToken(r, nil)},
		"key out of range": {r, encodePageToken(r, []byte("d"))},
		"long key":         {kv.Range{}, encodePageToken(kv.Range{}, make([]byte, 5000))},
		"not base64":       {r, "????"},
		"padding":          {r, token + "="},
	} {
		_, err := decodePageToken(test.r, test.token, kv.DefaultLimits)
		assert.ErrorIs(t, err, errPageToken, name)
	}
}

func FuzzPageToken(f *testing.F) {
	r := kv.Range{Start: []byte("a"), End: []byte("c")}
	f.Add(encodePageToken(r, []byte("b")), []byte("a"), []byte("c"))
	f.Add("", []byte{}, []byte{})
	f.Add("AWIQ\nrp62", []byte("0"), []byte{}) // base64 skips line ends: found
	f.Add("AWJ4k_GlLg", []byte("a"), []byte(nil))
	f.Fuzz(func(t *testing.T, token string, start, end []byte) {
		r := kv.Range{Start: start, End: end}
		rest, err := decodePageToken(r, token, kv.DefaultLimits)
		if err != nil {
			require.ErrorIs(t, err, errPageToken)
			return
		}
		last := rest.Start[:len(rest.Start)-1]
		require.True(t, r.Contains(last), "it never leaves the range")
		require.True(t, bytes.Equal(rest.End, r.End))
		require.Equal(t, token, encodePageToken(r, last), "there is one token for each place")
	})
}
