package client

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/service/load"
	"github.com/kvd-db/kvd/bench/service/server"
)

// TestClientsGetWhatTheySet needs the servers; it skips those that are not installed.
func TestClientsGetWhatTheySet(t *testing.T) {
	for _, with := range []struct {
		kind    *server.Kind
		clients []string
	}{
		{server.Redis("always", ""), []string{Rueidis, Rueidis100, Rueidis20, GoRedis}},
		{server.Redis("everysec", ""), []string{Rueidis}},
		{server.Memcached(), []string{GoMemcache}},
		{server.Etcd(), []string{Etcd}},
	} {
		t.Run(with.kind.Name, func(t *testing.T) {
			if err := with.kind.Find(); err != nil {
				t.Skip(err)
			}
			s, err := server.Start(t.Context(), with.kind, t.TempDir())
			require.NoError(t, err)
			defer func() { assert.NoError(t, s.Stop()) }()
			for _, name := range with.clients {
				c, err := Open(name, Options{Address: s.Address, Callers: 4})
				require.NoError(t, err)
				require.NoError(t, load.Fill(t.Context(), c, 20, 128, 4))
				l := load.Closed{Callers: 4, GetPercent: 50, Keys: 20, ValueBytes: 128, Duration: 100 * time.Millisecond}
				o, err := l.Run(t.Context(), []load.Target{c}, func(bool) {})
				require.NoError(t, err, name)
				assert.NotZero(t, o.Gets.Count, name)
				_, err = c.Get(t.Context(), []byte("not there"))
				require.Error(t, err, name)
				require.NoError(t, c.Close())
			}
			require.NoError(t, s.Freeze())
		})
	}
}

func TestAnEchoComesBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- ServeEcho(l) }()
	c, err := Open(Echo, Options{Address: l.Addr().String()})
	require.NoError(t, err)
	require.NoError(t, c.Set(t.Context(), nil, []byte("v")))
	_, err = c.Get(t.Context(), nil)
	require.Error(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, l.Close())
	require.Error(t, <-served)
}

func TestAppendsAreLeftNowhere(t *testing.T) {
	dir := t.TempDir()
	c, err := Open(AppendAlone, Options{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, c.Set(t.Context(), nil, []byte("v")))
	require.NoError(t, c.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestAnUnknownClientIsRefused(t *testing.T) {
	_, err := Open("telegraph", Options{})
	require.ErrorContains(t, err, "telegraph")
}
