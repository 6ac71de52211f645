package kvd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

func TestATokenIsNotSentInPlainTextToAnotherMachine(t *testing.T) {
	for target, allowed := range map[string]bool{
		"127.0.0.1:7070": true, "localhost": true, "[::1]:7070": true, "unix:/tmp/kvd.sock": true,
		"db.example:7070": false, "10.0.0.1": false, "127.0.0.1:7070,10.0.0.1:7070": false, "xds:///db": false,
		"kvds://db.example:7070": true, "kvds://a, kvds://b:7071": true, "kvds://a,b": false,
	} {
		c, err := Open(target, WithToken("t"))
		assert.Equal(t, allowed, err == nil, "%s: %v", target, err)
		if err == nil {
			require.NoError(t, c.Close())
			continue
		}
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// An empty token, as an environment variable that is not set has, is none.
func TestAnEmptyTokenMayGoAnywhere(t *testing.T) {
	c, err := Open("db.example:7070", WithToken(""))
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestKVDSTurnsTLSOn(t *testing.T) {
	var c config
	target, err := c.secure("a:1,b")
	require.NoError(t, err)
	assert.Equal(t, "a:1,b", target)
	assert.Nil(t, c.tls)
	target, err = c.secure("kvds://a:1, kvds://b")
	require.NoError(t, err)
	assert.Equal(t, "a:1,b", target)
	assert.NotNil(t, c.tls)
}

func TestATokenThatCannotBeHadIsUnauthenticated(t *testing.T) {
	c, err := Open(new(servertest.Map).Listen(t), WithTokenFrom(func() (string, error) { return "", errors.New("no such file") }))
	require.NoError(t, err)
	for range 2 {
		_, err = c.Get(t.Context(), []byte("k"))
		require.ErrorIs(t, err, ErrUnauthenticated)
		require.ErrorContains(t, err, "get the token: no such file")
		err = c.Put(t.Context(), []byte("k"), nil)
		require.ErrorIs(t, err, ErrUnauthenticated)
		assert.NotErrorIs(t, err, ErrUncertain)
	}
	require.NoError(t, c.Close())
}

// A token that was read from a file with the end of its line cannot be sent, and is not in the error.
func TestATokenWithTheEndOfItsLineIsUnauthenticated(t *testing.T) {
	for _, token := range []string{"secret\n", "secret\r\n", " secret", "secr\u00e9t"} {
		for way, opts := range ways {
			c := serve(t, nil, service.Options{}).open(t, append(opts, WithToken(token))...)
			for name, call := range callsOf(c) {
				err := call(t.Context())
				require.ErrorIs(t, err, ErrUnauthenticated, "%s %s", way, name)
				require.NotErrorIs(t, err, ErrUncertain, "%s %s", way, name)
				require.ErrorContains(t, err, "the end of a line", "%s %s", way, name)
				require.NotContains(t, err.Error(), "secr", "%s %s", way, name)
			}
		}
	}
}
