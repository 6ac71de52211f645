package torture

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// clockErrorAfterKill is what README promises.
const clockErrorAfterKill = 50 * time.Millisecond

// What is left of a key's time goes on as if the server had not been killed: leases and
// sessions neither end with it nor last longer. The test looks at what the server says
// is left, and takes the time that its own looks take for an uncertainty.
func TestKilledServerKeepsTheTimeOfLeases(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir)
	put := func(key string) {
		withClient(t, s, func(c *kvd.Client) {
			require.NoError(t, c.Put(t.Context(), []byte(key), []byte("1"), kvd.TTL(time.Hour)))
		})
	}
	put("a")
	for _, key := range []string{"b", "c", "d"} {
		before := lookAtLease(t, s, "a")
		s.kill(t)
		s = serve(t, dir)
		before.check(t, lookAtLease(t, s, "a"), "over the kill")
		put(key)
		young := lookAtLease(t, s, key)
		assert.LessOrEqual(t, young.left, time.Hour)
		for _, since := range []struct {
			key  string
			from look
		}{{"a", before}, {key, young}} {
			time.Sleep(300 * time.Millisecond) // the longer, the more a wrong speed shows
			since.from.check(t, lookAtLease(t, s, since.key), "after it")
		}
	}
	s.stop(t)
}

// look is what was left of a key's time at a moment from begin to end.
type look struct {
	begin, end time.Time
	left       time.Duration
}

func lookAtLease(t *testing.T, s *server, key string) (l look) {
	withClient(t, s, func(c *kvd.Client) {
		require.NoError(t, c.Ping(t.Context())) // so that there is a connection
		l.begin = time.Now()
		item, err := c.GetItem(t.Context(), []byte(key))
		l.end = time.Now()
		require.NoError(t, err)
		l.left = item.TTL
	})
	return l
}

// check compares how much less is left with how much time has passed.
func (l look) check(t *testing.T, later look, what string) {
	t.Helper()
	gone := l.left - later.left
	least, most := later.begin.Sub(l.end), later.end.Sub(l.begin)
	assert.Greater(t, gone, least-clockErrorAfterKill, "%s %v has passed, of the lease %v", what, least, gone)
	assert.Less(t, gone, most+clockErrorAfterKill, "%s %v has passed, of the lease %v", what, most, gone)
}

func withClient(t *testing.T, s *server, use func(c *kvd.Client)) {
	t.Helper()
	c, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	use(c)
	require.NoError(t, c.Close())
}
