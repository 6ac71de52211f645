package daemon

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/kvd-db/kvd/internal/vfs"
)

// Connections leave files to the store, however few there are.
func TestConnectionsLeaveFilesToTheStore(t *testing.T) {
	for files, want := range map[uint64]connLimits{
		1 << 63: {maxConns, maxPeerConns, maxAdmin},
		1 << 20: {maxConns, maxPeerConns, maxAdmin},
		20_000:  {maxConns, maxPeerConns, maxAdmin},
		16_384:  {8080, maxPeerConns, maxAdmin},
		4096:    {1936, 1024, 64},
		1024:    {406, 356, 58},
		400:     {29, 26, 19},
	} {
		c := DefaultConfig()
		require.NoError(t, c.limitConnections(files), files)
		assert.Equal(t, want, connLimits{c.MaxConns, c.MaxPeerConns, c.MaxAdminConns}, files)
		assert.LessOrEqual(t, uint64(c.MaxConns+c.MaxAdminConns+ownFiles+leastFiles), files)
	}
	c := DefaultConfig()
	require.ErrorIs(t, c.limitConnections(300), ErrUsage)
	c = DefaultConfig()
	c.MaxConns = 5000
	require.ErrorContains(t, c.limitConnections(1024), "ulimit -n")
	require.NoError(t, c.limitConnections(20_000))
	assert.Equal(t, 5000, c.MaxConns)
	c.MaxPeerConns = -1
	require.ErrorIs(t, c.limitConnections(20_000), ErrUsage)
}

// Idle connections to the admin address do not shut other clients out of it.
func TestIdleConnectionsKeepNobodyFromThePages(t *testing.T) {
	config := testConfig(zaptest.NewLogger(t), vfs.NewMem())
	config.MaxAdminConns = 4
	r := start(t, config)
	for range 20 {
		conn, err := net.Dial("tcp", r.admin)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }() // the service may have
	}
	for range 20 {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get("http://" + r.admin + "/livez")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	require.NoError(t, r.end())
}
