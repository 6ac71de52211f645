package service

import (
	"net"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
)

// A connection that has ended, and left a snapshot whose lease has ended too, is forgotten with its
// buffers: clients that are killed within a transaction must not add up in memory that nothing counts.
func TestAConnectionThatLeftASnapshotIsForgotten(t *testing.T) {
	s := New(limitsOnly{}, Options{})
	left := func() weak.Pointer[Conn] {
		here, there := net.Pipe()
		c := NewConn(s, here)
		require.True(t, s.leases.enter(c))
		s.leases.begun(c, nil, 1, time.Nanosecond)
		require.NoError(t, c.Close())
		require.NoError(t, there.Close())
		return weak.Make(c)
	}()
	testwait.Until(t, func() bool {
		runtime.GC()
		return left.Value() == nil
	})
	require.Zero(t, s.shares[shareOfSnapshots].total())
}
