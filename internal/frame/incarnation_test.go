package frame

import (
	"bytes"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIncarnationsInAGreeting(t *testing.T) {
	for text, want := range map[string]string{"": "00", "0": "0130", "1-00c0ffee00c0ffee": "12312d30306330666665653030633066666565", strings.Repeat("x", maxIncarnationBytes): "40" + strings.Repeat("78", maxIncarnationBytes)} {
		b := AppendIncarnation(nil, text)
		require.Equal(t, want, hex.EncodeToString(b))
		from := bytes.NewReader(append(b, "next"...))
		got, err := ReadIncarnation(from)
		require.NoError(t, err)
		require.Equal(t, text, got)
		require.Equal(t, 4, from.Len(), "it reads no further")
		for i := range b {
			_, err := ReadIncarnation(bytes.NewReader(b[:i]))
			require.Error(t, err)
			require.True(t, err == io.EOF || err == io.ErrUnexpectedEOF, err)
		}
	}
	_, err := ReadIncarnation(strings.NewReader("\x41" + strings.Repeat("x", 100)))
	require.ErrorIs(t, err, ErrMalformed)
}
