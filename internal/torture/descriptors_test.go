package torture

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// With 1,024 files, more connections than that, which idle, harm neither the store nor a
// client: it writes enough to flush and to merge, and reads it again.
func TestIdleConnectionsLeaveFilesToTheStore(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	binary := kvdBinary
	script, err := exec.LookPath("sh")
	require.NoError(t, err)
	s := serveAs(t, script, []string{"-c", `ulimit -n 1024; exec "$0" "$@"`, binary}, t.TempDir(), "--memory", "64MiB", "--durability", "buffered", "--flush-keys", "2000", "--raw-sockets=false")
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	ctx := context.Background()
	require.NoError(t, db.Put(ctx, []byte("before"), nil))

	var idle []net.Conn
	defer func() {
		for _, conn := range idle {
			_ = conn.Close() // the server may have
		}
	}()
	connect := func(address string, n int) {
		for range n {
			conn, err := net.Dial("tcp", address)
			require.NoError(t, err)
			// What makes it a connection of HTTP/2, which idles for minutes.
			_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			idle = append(idle, conn)
		}
	}
	connect(s.addr, 1100)
	connect(s.admin, 300)

	value := strings.Repeat("v", 1000)
	const rounds, keys = 8, 5000
	for round := range rounds {
		for at := 0; at < keys; at += 1000 {
			var b kvd.Batch
			for i := at; i < at+1000; i++ {
				b.Put([]byte(fmt.Sprint(i)), []byte(fmt.Sprint(round, value)))
			}
			_, err := db.Apply(ctx, &b)
			require.NoError(t, err, "%s", s.log)
		}
	}
	n := 0
	for item, err := range db.Scan(ctx, kvd.Prefix(nil)) {
		require.NoError(t, err)
		if string(item.Key) != "before" {
			if want := fmt.Sprint(rounds-1, value); string(item.Value) != want {
				require.Equal(t, want, string(item.Value))
			}
			n++
		}
	}
	assert.Equal(t, keys, n)
	for _, counted := range []string{
		`kvd_flushes_total\{partition="0"\} [1-9]`, `kvd_compactions_total\{partition="0"\} [1-9]`,
		`kvd_shed_total\{reason="(peer_)?connections"\} [1-9]`, // there were too many
	} {
		counter := regexp.MustCompile(counted)
		testwait.Until(t, func() bool { return counter.MatchString(metrics(t, s.admin)) }, counted)
	}
	require.NoError(t, db.Close())
	s.stop(t)
}
