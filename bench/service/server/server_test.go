package server

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
)

// TestMain lets the test binary be a server that accepts connections, or fails.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "fake" {
		os.Exit(fake(os.Args[2]))
	}
	os.Exit(m.Run())
}

func fake(address string) int {
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("READY listen=%s admin=none\n", l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			return 1
		}
		_ = c.Close() // the error does not matter
	}
}

func fakeKind(t *testing.T, announces bool, address string) *Kind {
	self, err := os.Executable()
	require.NoError(t, err)
	return &Kind{Name: "fake", Binary: self, announces: announces, args: func(free, _ string) []string {
		if address != "" {
			free = address
		}
		return []string{"fake", free}
	}}
}

func TestAServerTakesConnectionsOnceItIsStarted(t *testing.T) {
	for _, announces := range []bool{false, true} {
		dir := t.TempDir()
		s, err := Start(t.Context(), fakeKind(t, announces, ""), dir)
		require.NoError(t, err)
		c, err := net.Dial("tcp", s.Address)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, s.Stop())
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}

func TestAFrozenServerDoesNothingAndCanBeStopped(t *testing.T) {
	s, err := Start(t.Context(), fakeKind(t, true, ""), t.TempDir())
	require.NoError(t, err)
	require.NoError(t, s.Settle(t.Context()))
	require.NoError(t, s.Freeze())
	c, err := net.Dial("tcp", s.Address) // the kernel accepts it
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = c.Read(make([]byte, 5))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	require.NoError(t, s.Thaw())
	require.NoError(t, c.SetReadDeadline(testwait.Deadline()))
	_, err = c.Read(make([]byte, 5))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, s.Freeze())
	require.NoError(t, s.Stop())
	require.Error(t, s.Freeze(), "it is gone")
}

func TestAServerThatEndsSaysWhy(t *testing.T) {
	_, err := Start(t.Context(), fakeKind(t, true, "nowhere:nothing"), t.TempDir())
	require.ErrorContains(t, err, "fake ended")
	require.ErrorContains(t, err, "nothing")
}

func TestWhoIsNotInstalledIsMissing(t *testing.T) {
	k := &Kind{Name: "x", Binary: "no-such-binary"}
	var missing *Missing
	require.ErrorAs(t, k.Find(), &missing)
	assert.Equal(t, k, missing.Kind)
	_, err := Start(t.Context(), k, t.TempDir())
	require.ErrorAs(t, err, &missing)
}
