package daemon

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/kvd-db/kvd/internal/vfs"
)

// A server that is no node of a cluster runs no goroutine of the packages for it; a node does, which
// shows that the test would see them.
func TestAServerThatIsAloneRunsNothingOfACluster(t *testing.T) {
	of := []string{"/internal/replica.", "/internal/replicated.", "/internal/peer."}
	goroutines := func(r *running) string {
		put(t, r, "key")
		r.holds("key")
		code, page := r.page("/debug/pprof/goroutine?debug=2")
		require.Equal(t, http.StatusOK, code)
		return page
	}
	alone := start(t, testConfig(zaptest.NewLogger(t), vfs.NewMem()))
	page := goroutines(alone)
	for _, name := range of {
		require.NotContains(t, page, name)
	}
	require.Contains(t, page, "/internal/engine.")
	require.NoError(t, alone.end())

	starts, _ := clusterOf(t, 1)
	node := starts[0]()
	page = goroutines(node)
	for _, name := range of {
		require.Contains(t, page, name)
	}
	require.NoError(t, node.end())
}
