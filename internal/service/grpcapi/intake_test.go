package grpcapi

import (
	"bytes"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// arriving is an intake with one place, and what queues for it.
type arriving struct {
	*intake
	api   *api
	order chan string
}

func newArriving(account int64) *arriving {
	a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{BufferBytes: account}))
	return &arriving{a.intake, a, make(chan string, 100)}
}

// begin has a request of 4 MiB come. leave ends it, once it has a place.
func (in *arriving) begin(t *testing.T, name string, conn *connection) (c *call, leave chan struct{}) {
	c = &call{Context: t.Context(), api: in.api, conn: conn, waits: in.api.server.CallWaits(), signal: make(chan struct{}, 1)}
	c.wait.Conn, c.wait.Evict = conn.Conn, c.evict
	require.True(t, c.waits.Begin(&c.wait))
	c.message.take(binary.BigEndian.AppendUint32([]byte{0}, 4<<20))
	leave = make(chan struct{})
	go func() {
		a, err := in.enter(t.Context(), c)
		if err != nil {
			assert.ErrorIs(t, err, kv.ErrOverloaded)
			in.order <- name + " refused"
		} else {
			in.order <- name
			<-leave
			in.received(a)
			in.leave(a)
		}
		c.waits.End(&c.wait)
		in.account.Give(c.charged)
	}()
	synctest.Wait()
	return c, leave
}

// The next place goes to the connection that has least.
func TestPlacesGoToTheConnectionThatHasLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newArriving(1 << 30)
		in.limit = 24 << 20 // two places
		greedy, modest := testConn(in.api, nil), testConn(in.api, nil)
		_, first := in.begin(t, "first", greedy)
		_, second := in.begin(t, "second", greedy)
		_, third := in.begin(t, "third", greedy)
		_, other := in.begin(t, "other", modest)
		close(first)
		synctest.Wait()
		close(second)
		synctest.Wait()
		close(other)
		close(third)
		synctest.Wait()
		for _, want := range []string{"first", "second", "other", "third"} {
			assert.Equal(t, want, <-in.order)
		}
		assert.Zero(t, in.mu.need)
		assert.Zero(t, greedy.intake.need)
		assert.Zero(t, greedy.peer.intake.need)
		assert.Zero(t, in.account.Used())
	})
}

// While another waits, a request has to come; else it has its time.
func TestASlowRequestIsEndedForAnother(t *testing.T) {
	for name, test := range map[string]struct {
		move, same bool
		after      time.Duration // the place is given to another
	}{
		"nothing comes":                                {after: longestPause},
		"nothing comes, to the same connection":        {same: true, after: longestPause},
		"little comes":                                 {move: true, after: longestPause + 4*time.Second},
		"little comes, and its connection has another": {move: true, same: true, after: intakeWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newArriving(24 << 20)
				conn, other := testConn(in.api, nil), testConn(in.api, nil)
				if test.same {
					other = conn
				}
				slow, leaveSlow := in.begin(t, "slow", conn)
				require.Equal(t, "slow", <-in.order)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.False(t, slow.ended.Load(), "none waits")
				in.mu.Lock()
				in.mu.coming[0].opened = time.Now() // it may come only now
				in.mu.Unlock()
				_, leave := in.begin(t, "waits", other)
				begin := time.Now()
				for range 100 {
					if slow.ended.Load() || len(in.order) > 0 {
						break
					}
					if test.move {
						slow.arrived(1000)
					}
					time.Sleep(intakeLook / 5)
					synctest.Wait()
				}
				assert.InDelta(t, test.after.Seconds(), time.Since(begin).Seconds(), 2*intakeLook.Seconds())
				assert.Equal(t, test.after != intakeWait, slow.ended.Load(), "the one that waits is refused, or the other ended")
				close(leaveSlow)
				close(leave)
				synctest.Wait()
				assert.Zero(t, in.account.Used())
			})
		})
	}
}

// The length of a message is found, and when all of it is there, however it comes.
func TestMessagesAreFollowedHoweverTheyCome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{BufferBytes: 1 << 20}))
		conn := testConn(a, nil)
		c := a.newHTTP2Conn(conn, nil)
		c.in.walk.skip = 0
		one := &call{api: a, conn: conn, waits: a.server.CallWaits(), signal: make(chan struct{}, 1)}
		one.wait.Conn, one.wait.Evict = conn.Conn, one.evict
		require.True(t, one.waits.Begin(&one.wait))
		conn.opened(1, false)
		conn.bind(one)
		length := rapid.SampledFrom([]int{0, 1, 3000, 60_000}).Draw(t, "length")
		body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), bytes.Repeat([]byte{1}, length)...)
		for rest := body; len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(1, 16<<10).Draw(t, "data"))
			pad := rapid.IntRange(-1, 255).Draw(t, "pad")
			payload, flags := rest[:n], byte(0)
			if pad >= 0 {
				payload = append(append([]byte{byte(pad)}, payload...), make([]byte, pad)...)
				flags = h2Padded
			}
			frame := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), h2Data, flags, 0, 0, 0, 1}
			require.False(t, one.here.Load())
			for frame = append(frame, payload...); len(frame) > 0; {
				part := min(len(frame), rapid.IntRange(1, 4096).Draw(t, "part"))
				require.Equal(t, part, c.follow(frame[:part]))
				frame = frame[part:]
			}
			rest = rest[n:]
		}
		require.True(t, one.here.Load())
		require.Equal(t, int64(length) > longBytes(1<<20), one.long.Load())
		require.EqualValues(t, length, one.message.length())
		require.Empty(t, one.signal, "gRPC has yet to handle the last frame")
		c.wakeCalls()
		require.Len(t, one.signal, 1)
		one.waits.End(&one.wait)
	})
}
