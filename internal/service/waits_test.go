package service

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/memory"
)

// Whatever begins, grows and ends: the limits are kept, what is ended had its share (I2),
// and the sums are those of what is there.
func TestWaitsKeepTheirPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &Waits{limit: amount{6, 100}}
		var conns []*Conn
		for range 3 {
			p := new(Peer)
			for range 2 {
				conns = append(conns, &Conn{peer: p})
			}
		}
		alive := map[*Wait]bool{}
		var all []*Wait
		busy := map[*Wait]bool{}
		// share says what connections and peers have, as the reader of I2 would count.
		share := func(of func(*Wait) any, value func(*Wait) int64, one *Wait) (own, sum, holders int64) {
			by := map[any]int64{}
			for x := range alive {
				by[of(x)] += value(x)
				sum += value(x)
			}
			return by[of(one)], sum, int64(len(by))
		}
		evicted := func(one *Wait) {
			require.True(t, alive[one], "ended twice, or never begun")
			require.False(t, busy[one], "it did not wait")
			count := func(*Wait) int64 { return 1 }
			own, sum, peers := share(func(x *Wait) any { return x.Conn.peer }, count, one)
			fair := own*peers >= sum
			own, sum, peers = share(func(x *Wait) any { return x.Conn.peer }, func(x *Wait) int64 { return x.bytes }, one)
			fair = fair || own*peers >= sum
			require.True(t, fair, "its peer had less than its share")
			delete(alive, one)
		}
		step := func(one *Wait, in bool) {
			if !in && alive[one] {
				delete(alive, one)
			}
			count, size, idle := 0, int64(0), 0
			for x := range alive {
				count++
				size += x.bytes
				if !busy[x] {
					idle++
				}
			}
			require.Equal(t, amount{count, size}, w.stats())
			if idle == count {
				require.LessOrEqual(t, count, w.limit.count)
				require.LessOrEqual(t, size, w.limit.bytes)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				one := &Wait{Conn: rapid.SampledFrom(conns).Draw(t, "conn")}
				one.Evict = func() { evicted(one) }
				one.Idle = func() bool { return !busy[one] }
				alive[one] = true
				all = append(all, one)
				step(one, w.Begin(one))
			},
			"grow": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip()
				}
				one := rapid.SampledFrom(all).Draw(t, "one")
				n := rapid.IntRange(0, 60).Draw(t, "bytes")
				in := w.Grow(one, n)
				require.False(t, in && !alive[one])
				step(one, in)
			},
			"shrink": func(t *rapid.T) {
				if len(all) > 0 {
					come := rapid.Int64Range(1, 60).Draw(t, "come")
					w.ShrinkTo(rapid.SampledFrom(all).Draw(t, "one"), rapid.Int64Range(0, come).Draw(t, "left"), come)
				}
			},
			"busy": func(t *rapid.T) {
				if len(all) > 0 {
					one := rapid.SampledFrom(all).Draw(t, "one")
					busy[one] = !busy[one]
				}
			},
			"end": func(t *rapid.T) {
				if len(all) > 0 {
					one := rapid.SampledFrom(all).Draw(t, "one")
					w.End(one)
					delete(alive, one)
				}
			},
		})
		for _, one := range all {
			w.End(one)
		}
		require.Zero(t, w.stats())
		require.Zero(t, w.mu.peers)
		require.Nil(t, w.mu.first)
		require.Nil(t, w.mu.last)
		for _, c := range conns {
			require.Zero(t, c.waits)
			require.Zero(t, c.peer.waits)
		}
	})
}

// Of many connections none can keep a late one from its share.
func TestSharesLeaveRoom(t *testing.T) {
	s := &shares{limit: 1024}
	own := func(p *Peer) *Conn { return &Conn{peer: p} }
	fill := func(c *Conn) (n int) {
		for s.enter(c) {
			n++
		}
		return n
	}
	local := &Peer{loopback: true}
	assert.Equal(t, 512, fill(own(local)), "half for the first")
	assert.Equal(t, 256, fill(own(local)))

	// Those that come first have more. Once they give back what they have, and take what they get again, the late ones
	// have their share.
	s = &shares{limit: 1024}
	all := make([]*Conn, 15)
	for i := range all {
		all[i] = own(local)
		fill(all[i])
	}
	for range 10_000 {
		for _, c := range all {
			if c.shares[0] > 0 {
				s.leave(c)
			}
			fill(c)
		}
	}
	for _, c := range all {
		assert.InDelta(t, 1024/16, c.shares[0], 2)
	}
	assert.InDelta(t, 1024/16, fill(own(local))*2, 4, "and half of that is there for the next")

	// An address that is not that of all clients has a share of its own.
	s = &shares{limit: 1000}
	remote := &Peer{}
	taken := 0
	for range 1000 {
		taken += fill(own(remote))
	}
	assert.InDelta(t, 800, taken, 2)
	assert.Equal(t, 100, fill(own(&Peer{})), "as much as is free beside it")
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

type addressed struct {
	net.Conn
	remote address
}

func (a addressed) RemoteAddr() net.Addr { return a.remote }

func TestWhatAPeerIs(t *testing.T) {
	for remote, want := range map[address]struct {
		peer     string
		loopback bool
	}{
		"10.1.2.3:55":            {"10.1.2.3", false},
		"127.0.0.1:55":           {"127.0.0.1", true},
		"[::1]:55":               {"::1", true},
		"[::ffff:10.1.2.3]:55":   {"10.1.2.3", false},
		"[2001:db8:1:2:3::4]:55": {"2001:db8:1:2::/64", false},
		"[2001:db8:1:2:9::1]:56": {"2001:db8:1:2::/64", false},
		"[fe80::1%eth0]:55":      {"fe80::/64", false},
		"@":                      {"@", true},
		"bufconn":                {"bufconn", true},
	} {
		peer := peerOf(addressed{remote: remote})
		assert.Equal(t, want.peer, peer, remote)
		assert.Equal(t, want.loopback, loopback(peer), remote)
	}
}

func TestAnAllowanceLeaks(t *testing.T) {
	var a Allowance
	now := time.Unix(1000, 0)
	assert.InDelta(t, 5, a.Take(5, 2, now), 0)
	assert.InDelta(t, 4, a.Take(1, 2, now.Add(time.Second)), 0)
	assert.InDelta(t, 1, a.Take(1, 2, now.Add(time.Hour)), 0)
	assert.InDelta(t, 0, a.left(2, now.Add(2*time.Hour)), 0)
}

// What has come of requests is in the account of all requests, and is ended for others
// that fill it, but for a quarter of its bound.
func TestWaitsAreWithinTheAccount(t *testing.T) {
	account := memory.New(1000)
	w := &Waits{kind: waitForCalls, limit: amount{100, 400}, memory: account}
	conn := &Conn{peer: &Peer{}}
	var ended []*Wait
	begin := func() *Wait {
		one := &Wait{Conn: conn}
		one.Evict = func() { ended = append(ended, one) }
		require.True(t, w.Begin(one))
		return one
	}
	first, second, third := begin(), begin(), begin()
	require.True(t, w.Grow(first, 200))
	require.True(t, w.Grow(second, 100))
	require.EqualValues(t, 300, account.Used())
	account.Add(750) // all there is, and more
	require.True(t, w.Grow(third, 50))
	require.Equal(t, []*Wait{first}, ended)
	require.EqualValues(t, 900, account.Used())

	held, in := w.HandOver(second)
	require.True(t, in)
	require.EqualValues(t, 100, held)
	require.EqualValues(t, 900, account.Used(), "it is the caller's now")
	account.Give(held)
	_, in = w.HandOver(first)
	require.False(t, in, "it was ended")
	w.End(third)
	require.EqualValues(t, 750, account.Used())
	require.Zero(t, w.stats())
}
