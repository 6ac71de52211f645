package frame

import (
	"bytes"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSignInsOfVersion2AreRead(t *testing.T) {
	name := filepath.Join("testdata", "v2", "sign-in.hex")
	const token = "kvd1.0123456789abcdef.secret"
	data := AppendSignIn(nil, token)
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(hex.Dump(data)), 0o644))
	}
	golden, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, string(golden), hex.Dump(data))
	from := bytes.NewReader(append(data, "next"...))
	got, err := ReadSignIn(from)
	require.NoError(t, err)
	assert.Equal(t, token, got)
	assert.Equal(t, 4, from.Len(), "it reads no further")
}

func TestWhatIsNoSignInIsRefused(t *testing.T) {
	good := AppendSignIn(nil, "token")
	for i := range len(good) {
		_, err := ReadSignIn(bytes.NewReader(good[:i]))
		require.Error(t, err, "cut at %d", i)
	}
	for i := kindOffset; i < headerBytes; i++ {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		_, err := ReadSignIn(bytes.NewReader(bad))
		require.ErrorIs(t, err, ErrMalformed, "byte %d", i)
	}
	_, err := ReadSignIn(bytes.NewReader(AppendSignIn(nil, "")))
	require.ErrorIs(t, err, ErrMalformed)
	token, err := ReadAnySignIn(bytes.NewReader(AppendSignIn(nil, "")))
	require.NoError(t, err)
	require.Empty(t, token)
	_, err = ReadSignIn(bytes.NewReader(AppendSignIn(nil, strings.Repeat("x", MaxSignInBytes))))
	require.ErrorIs(t, err, ErrTooLarge)
	// A lying length costs no memory.
	huge := bytes.Clone(good)
	huge[3] = 0x7f
	_, err = ReadSignIn(bytes.NewReader(huge))
	require.ErrorIs(t, err, ErrTooLarge)
	// The frames of requests do not take one for theirs.
	require.ErrorIs(t, new(Request).DecodeCompact(good), ErrMalformed)
}

func TestPreamblesNameTheirVersion(t *testing.T) {
	assert.Equal(t, Preamble, PreambleOf(VersionPlain))
	for _, version := range []byte{VersionPlain, VersionSignIn, VersionCalls, 9} {
		assert.Equal(t, version, Version([PreambleBytes]byte([]byte(PreambleOf(version)))))
	}
	assert.Zero(t, Version([PreambleBytes]byte([]byte("\x00kvdfrx\x01"))))
}

func FuzzReadSignIn(f *testing.F) {
	f.Add(AppendSignIn(nil, "token"))
	f.Add(AppendSignIn(nil, ""))
	f.Fuzz(func(t *testing.T, data []byte) {
		from := bytes.NewReader(data)
		token, err := ReadSignIn(from)
		if err != nil {
			return
		}
		rest, err := io.ReadAll(from)
		require.NoError(t, err)
		again, err := ReadSignIn(bytes.NewReader(AppendSignIn(nil, token)))
		require.NoError(t, err)
		require.Equal(t, token, again)
		require.LessOrEqual(t, len(data)-len(rest), MaxSignInBytes)
	})
}
