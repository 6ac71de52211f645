package grpcapi

import (
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A connection ends once an answer to a unary call was not written for as long as a default
// deadline, however many were before and after it. Answers of streams have their own limit.
func TestAnUnwrittenAnswerEndsItsConnectionInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 30 * time.Second
		a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{Deadline: patience}))
		near, far := net.Pipe()
		defer func() {
			require.NoError(t, near.Close())
			require.NoError(t, far.Close())
		}()
		conn := testConn(a, near)
		var ended time.Duration
		begun := time.Now()
		conn.end = func(why error) {
			assert.Equal(t, errUnread, why)
			ended = time.Since(begun)
		}
		take := func() int64 {
			require.True(t, a.server.Memory().Take(100, 0))
			return 100
		}
		stream := a.lend(conn, take())
		for range 100 {
			l := a.lendUnary(conn, take())
			time.Sleep(time.Second)
			l.Give(0)
		}
		first, unread := a.lendUnary(conn, take()), a.lendUnary(conn, take())
		time.Sleep(patience / 2)
		first.Give(0)
		first.Give(0) // counts once
		last := a.lendUnary(conn, take())
		assert.EqualValues(t, 200, conn.unread.Load())
		time.Sleep(patience + verdictWait)
		synctest.Wait()
		assert.Equal(t, 100*time.Second+patience+verdictWait, ended)

		unread.Give(0)
		conn.loans.end()
		assert.Zero(t, conn.unread.Load())
		assert.Zero(t, a.server.Memory().Used())
		for _, l := range []*lender{stream, last, a.lendUnary(conn, take()), a.lend(conn, take())} {
			l.Give(0)
		}
		assert.Zero(t, conn.unread.Load())
		assert.Zero(t, a.server.Memory().Used(), "what was given back with the connection counts once")
	})
}

// An answer that gRPC drops gives its memory back, and does not end its connection.
func TestADroppedAnswerGivesItsMemoryBack(t *testing.T) {
	a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{Deadline: time.Hour}))
	near, far := net.Pipe()
	defer func() {
		require.NoError(t, near.Close())
		require.NoError(t, far.Close())
	}()
	conn := testConn(a, near)
	conn.end = func(error) { t.Error("the connection is ended") }
	drop := func(of *lender) {
		require.True(t, a.server.Memory().Take(100, 0))
		_, err := frame.Codec().Marshal(&frame.Lent{Message: &kvdpb.GetResponse{}, Lender: of, Bytes: 100})
		require.NoError(t, err)
	}
	drop(a.lend(conn, 100))
	testwait.Until(t, func() bool {
		runtime.GC()
		return a.server.Memory().Used() == 0
	})
	drop(a.lendUnary(conn, 100))
	conn.loans.look(0) // collects, instead of ending the connection
	testwait.Until(t, func() bool { return a.server.Memory().Used() == 0 })
	conn.loans.look(0)
	assert.Zero(t, conn.unread.Load())
	conn.loans.end()
}
