package service

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
	assert.Equal(t, "AWJ4k_GlLg", encodePageToken(r, false, []byte("bx")))
	assert.Equal(t, "AmJ44DGLxA", encodePageToken(r, true, []byte("bx")))
}

func TestPageTokenOfADamagedOrForeignScanIsRefused(t *testing.T) {
	r := kv.Range{Start: []byte("a"), End: []byte("c")}
	token := encodePageToken(r, false, []byte("bx"))
	rest, err := decodePageToken(r, false, token, kv.DefaultLimits)
	require.NoError(t, err)
	assert.Equal(t, kv.Range{Start: []byte("bx\x00"), End: []byte("c")}, rest)
	backward := encodePageToken(r, true, []byte("bx"))
	rest, err = decodePageToken(r, true, backward, kv.DefaultLimits)
	require.NoError(t, err)
	assert.Equal(t, kv.Range{Start: []byte("a"), End: []byte("bx")}, rest)

	for name, test := range map[string]struct {
		r     kv.Range
		token string
	}{
		"another start":    {kv.Range{Start: []byte("b"), End: []byte("c")}, token},
		"another end":      {kv.Range{Start: []byte("a")}, token},
		"shifted":          {kv.Range{Start: []byte("ac")}, encodePageToken(r, false, []byte("bx"))},
		"cut":              {r, token[:len(token)-1]},
		"changed":          {r, "B" + token[1:]},
		"empty key":        {r, encodePageToken(r, false, nil)},
		"key out of range": {r, encodePageToken(r, false, []byte("d"))},
		"long key":         {kv.Range{}, encodePageToken(kv.Range{}, false, make([]byte, 5000))},
		"not base64":       {r, "????"},
		"padding":          {r, token + "="},
		"other direction":  {r, backward},
	} {
		_, err := decodePageToken(test.r, false, test.token, kv.DefaultLimits)
		assert.ErrorIs(t, err, errPageToken, name)
	}
	_, err = decodePageToken(r, true, token, kv.DefaultLimits)
	assert.ErrorIs(t, err, errPageToken)
}

func FuzzPageToken(f *testing.F) {
	r := kv.Range{Start: []byte("a"), End: []byte("c")}
	f.Add(encodePageToken(r, false, []byte("b")), false, []byte("a"), []byte("c"))
	f.Add(encodePageToken(r, true, []byte("a")), true, []byte("a"), []byte("c"))
	f.Add("", false, []byte{}, []byte{})
	f.Add("AWIQ\nrp62", false, []byte("0"), []byte{}) // base64 skips line ends: found
	f.Add("AWJ4k_GlLg", false, []byte("a"), []byte(nil))
	f.Fuzz(func(t *testing.T, token string, reverse bool, start, end []byte) {
		r := kv.Range{Start: start, End: end}
		rest, err := decodePageToken(r, reverse, token, kv.DefaultLimits)
		if err != nil {
			require.ErrorIs(t, err, errPageToken)
			return
		}
		last := rest.End
		if reverse {
			require.True(t, bytes.Equal(rest.Start, r.Start))
		} else {
			last = rest.Start[:len(rest.Start)-1]
			require.True(t, bytes.Equal(rest.End, r.End))
		}
		require.True(t, r.Contains(last), "it never leaves the range")
		require.False(t, rest.Contains(last), "it never comes twice")
		require.Equal(t, token, encodePageToken(r, reverse, last), "there is one token for each place")
	})
}
