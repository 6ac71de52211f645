package kv

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDecoderTakesWhatIsInBounds(t *testing.T) {
	const most = 1<<64 - 1
	data := binary.AppendUvarint([]byte{0, 127, 0x80, 1}, most)
	d := Decoder{Rest: append(data, "\x02abc"...)}
	require.Equal(t, []uint64{0, 127, 128, most}, []uint64{d.Uvarint(0), d.Uvarint(127), d.Uvarint(128), d.Uvarint(most)})
	b := d.Bytes(2)
	require.Equal(t, []byte("ab"), b)
	require.Equal(t, 2, cap(b), "an append must not reach what follows")
	require.Equal(t, []byte{}, d.Take(0))
	require.Equal(t, []byte("c"), d.Take(1))
	require.Empty(t, d.Rest)
	require.NoError(t, d.Err)
}

func TestDecoderStopsAtWhatIsOutOfBounds(t *testing.T) {
	for name, c := range map[string]struct {
		data   string
		read   func(*Decoder)
		reason string
		rest   string
	}{
		"nothing there":    {"", func(d *Decoder) { d.Uvarint(9) }, "number is cut or too long", ""},
		"cut number":       {"\x80", func(d *Decoder) { d.Uvarint(999) }, "number is cut or too long", "\x80"},
		"over 64 bits":     {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", func(d *Decoder) { d.Uvarint(1<<64 - 1) }, "number is cut or too long", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"},
		"over the bound":   {"\x0a", func(d *Decoder) { d.Uvarint(9) }, "number 10, want at most 9", "\x0a"},
		"a longer form":    {"\x81\x00", func(d *Decoder) { d.Uvarint(9) }, "number is not in its shortest form", "\x81\x00"},
		"past the end":     {"ab", func(d *Decoder) { d.Take(3) }, "3 bytes, but 2 are left", "ab"},
		"length too large": {"\x03abc", func(d *Decoder) { d.Bytes(2) }, "number 3, want at most 2", "\x03abc"},
		"string is cut":    {"\x03ab", func(d *Decoder) { d.Bytes(3) }, "3 bytes, but 2 are left", "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decoder{Rest: []byte(c.data)}
			c.read(&d)
			require.EqualError(t, d.Err, c.reason)
			require.Equal(t, c.rest, string(d.Rest))

			d.Rest = []byte("\x01a")
			assert.Zero(t, d.Uvarint(9))
			assert.Nil(t, d.Take(1))
			assert.Nil(t, d.Bytes(9))
			assert.EqualError(t, d.Err, c.reason, "the first error sticks")
			assert.Equal(t, "\x01a", string(d.Rest))
		})
	}
}
