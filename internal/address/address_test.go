package address_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/address"
)

func TestAnIPv4AddressMeansIPv4Alone(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("SKIPPED: this machine has no IPv6: %v", err)
	} else {
		require.NoError(t, l.Close())
	}
	for _, c := range []struct {
		listen    string
		four, six bool
	}{
		{"0.0.0.0:0", true, false},
		{"127.0.0.1:0", true, false},
		{"[::1]:0", false, true},
		{":0", true, true},
		{"[::]:0", true, true},
	} {
		l, err := address.Listen(c.listen)
		require.NoError(t, err, c.listen)
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		require.Equal(t, c.four, connects(t, "127.0.0.1", port), "%s by IPv4", c.listen)
		require.Equal(t, c.six, connects(t, "::1", port), "%s by IPv6", c.listen)
		require.NoError(t, l.Close())
	}
}

// connects reports whether something listens at a port.
func connects(t *testing.T, host, port string) bool {
	c, err := net.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return false
	}
	require.NoError(t, c.Close())
	return true
}

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.8.8.8": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "db1": false, "localhost.example.com": false,
	} {
		require.Equal(t, want, address.IsLoopback(host), host)
	}
}
