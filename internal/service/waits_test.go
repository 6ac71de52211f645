package service

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/memory"
	"github.com/kvd-db/kvd/internal/testwait"
)

// Whatever begins, grows and ends: the limits are kept, what is ended had its share (I2),
// and the sums are those of what is there.
func TestWaitsKeepTheirPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &waits{limit: amount{6, 100}}
		var conns []*connection
		for range 3 {
			p := new(peerEntry)
			for range 2 {
				conns = append(conns, &connection{peer: p})
			}
		}
		alive := map[*wait]bool{}
		var all []*wait
		busy := map[*wait]bool{}
		// share says what connections and peers have, as the reader of I2 would count.
		share := func(of func(*wait) any, value func(*wait) int64, one *wait) (own, sum, holders int64) {
			by := map[any]int64{}
			for x := range alive {
				by[of(x)] += value(x)
				sum += value(x)
			}
			return by[of(one)], sum, int64(len(by))
		}
		evicted := func(one *wait) {
			require.True(t, alive[one], "ended twice, or never begun")
			require.False(t, busy[one], "it did not wait")
			count := func(*wait) int64 { return 1 }
			own, sum, peers := share(func(x *wait) any { return x.conn.peer }, count, one)
			fair := own*peers >= sum
			own, sum, peers = share(func(x *wait) any { return x.conn.peer }, func(x *wait) int64 { return x.bytes }, one)
			fair = fair || own*peers >= sum
			require.True(t, fair, "its peer had less than its share")
			delete(alive, one)
		}
		step := func(one *wait, in bool) {
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
				one := &wait{conn: rapid.SampledFrom(conns).Draw(t, "conn")}
				one.evict = func() { evicted(one) }
				one.idle = func() bool { return !busy[one] }
				alive[one] = true
				all = append(all, one)
				step(one, w.begin(one))
			},
			"grow": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip()
				}
				one := rapid.SampledFrom(all).Draw(t, "one")
				n := rapid.IntRange(0, 60).Draw(t, "bytes")
				in := w.grow(one, n)
				require.False(t, in && !alive[one])
				step(one, in)
			},
			"shrink": func(t *rapid.T) {
				if len(all) > 0 {
					come := rapid.Int64Range(1, 60).Draw(t, "come")
					w.shrinkTo(rapid.SampledFrom(all).Draw(t, "one"), rapid.Int64Range(0, come).Draw(t, "left"), come)
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
					w.end(one)
					delete(alive, one)
				}
			},
		})
		for _, one := range all {
			w.end(one)
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
	own := func(p *peerEntry) *connection { return &connection{peer: p} }
	fill := func(c *connection) (n int) {
		for s.enter(c) {
			n++
		}
		return n
	}
	local := &peerEntry{loopback: true}
	assert.Equal(t, 512, fill(own(local)), "half for the first")
	assert.Equal(t, 256, fill(own(local)))

	// Those that come first have more. Once they give back what they have, and take what they get again, the late ones
	// have their share.
	s = &shares{limit: 1024}
	all := make([]*connection, 15)
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
	remote := &peerEntry{}
	taken := 0
	for range 1000 {
		taken += fill(own(remote))
	}
	assert.InDelta(t, 800, taken, 2)
	assert.Equal(t, 100, fill(own(&peerEntry{})), "as much as is free beside it")
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

// The frames are found however the bytes are cut, and reading stops behind headers.
func TestFramesAreFoundHoweverTheyCome(t *testing.T) {
	frame := func(kind byte, stream uint32, payload int) []byte {
		b := []byte{0, byte(payload >> 8), byte(payload), kind, 0}
		b = binary.BigEndian.AppendUint32(b, stream)
		return append(b, make([]byte, payload)...)
	}
	var all []byte
	for _, f := range [][]byte{make([]byte, h2PrefaceBytes), frame(4, 0, 0), frame(h2Headers, 1, 20), frame(h2Data, 1, 300), frame(h2Headers, 3, 0), frame(h2Continuation, 3, 5), frame(h2Data, 3, 1)} {
		all = append(all, f...)
	}
	stops := []int{h2PrefaceBytes + 9 + 29, h2PrefaceBytes + 9 + 29 + 309 + 9, h2PrefaceBytes + 9 + 29 + 309 + 9 + 14}
	for part := 1; part <= len(all); part++ {
		s := newServer(limitsOnly{}, Options{}, defaultLifetimes)
		near, far := net.Pipe()
		go func() {
			for rest := all; len(rest) > 0; rest = rest[min(part, len(rest)):] {
				_, err := far.Write(rest[:min(part, len(rest))])
				assert.NoError(t, err)
			}
			assert.NoError(t, far.Close())
		}()
		c := s.newHTTP2Conn(near, &connection{peer: new(peerEntry)}, nil, nil)
		var got []byte
		var ends []int
		for buffer := make([]byte, 100); ; {
			n, err := c.Read(buffer)
			got = append(got, buffer[:n]...)
			ends = append(ends, len(got))
			if err != nil {
				break
			}
		}
		require.True(t, bytes.Equal(all, got), "in parts of %d", part)
		require.Subset(t, ends, stops, "in parts of %d", part)
		require.EqualValues(t, 3, c.in.last)
		require.EqualValues(t, 301, c.in.data)
		require.NoError(t, near.Close())
	}
}

func TestAnAllowanceLeaks(t *testing.T) {
	var a allowance
	now := time.Unix(1000, 0)
	assert.InDelta(t, 5, a.take(5, 2, now), 0)
	assert.InDelta(t, 4, a.take(1, 2, now.Add(time.Second)), 0)
	assert.InDelta(t, 1, a.take(1, 2, now.Add(time.Hour)), 0)
	assert.InDelta(t, 0, a.left(2, now.Add(2*time.Hour)), 0)
}

// A farewell does not tear a frame apart that is being sent.
func TestAFarewellComesBetweenFrames(t *testing.T) {
	s := newServer(limitsOnly{}, Options{}, defaultLifetimes)
	near, far := net.Pipe()
	c := s.newHTTP2Conn(near, &connection{peer: new(peerEntry)}, nil, nil)
	heard := make(chan []byte)
	go func() {
		var all bytes.Buffer
		_, err := all.ReadFrom(far)
		assert.NoError(t, err)
		heard <- all.Bytes()
	}()
	begun := []byte{0, 0, 3, h2Data, 0, 0, 0, 0, 1, 'a'}
	n, err := c.Write(begun)
	require.NoError(t, err)
	require.Equal(t, len(begun), n)
	c.in.last, c.in.ended = 7, &floodError{"streams"}
	c.server.lifetimes.shutdownWait = time.Hour
	said := make(chan struct{})
	go func() {
		defer close(said)
		c.sayFarewell()
	}()
	testwait.Until(t, func() bool {
		c.out.Lock()
		defer c.out.Unlock()
		return c.out.farewell != nil
	})
	for range 2 {
		n, err = c.Write([]byte("bcxxxxxxxxxx"))
		require.NoError(t, err)
		require.Equal(t, 12, n)
	}
	require.NoError(t, near.Close())
	<-said
	want := append(append(begun, "bc"...), appendGoAway(nil, 7, h2EnhanceYourCalm, c.in.ended.Error())...)
	assert.Equal(t, want, <-heard)
}

// What has come of requests is in the account of all requests, and is ended for others
// that fill it, but for a quarter of its bound.
func TestWaitsAreWithinTheAccount(t *testing.T) {
	account := memory.New(1000)
	w := &waits{kind: waitForCalls, limit: amount{100, 400}, memory: account}
	conn := &connection{peer: &peerEntry{}}
	var ended []*wait
	begin := func() *wait {
		one := &wait{conn: conn}
		one.evict = func() { ended = append(ended, one) }
		require.True(t, w.begin(one))
		return one
	}
	first, second, third := begin(), begin(), begin()
	require.True(t, w.grow(first, 200))
	require.True(t, w.grow(second, 100))
	require.EqualValues(t, 300, account.Used())
	account.Add(750) // all there is, and more
	require.True(t, w.grow(third, 50))
	require.Equal(t, []*wait{first}, ended)
	require.EqualValues(t, 900, account.Used())

	held, in := w.handOver(second)
	require.True(t, in)
	require.EqualValues(t, 100, held)
	require.EqualValues(t, 900, account.Used(), "it is the caller's now")
	account.Give(held)
	_, in = w.handOver(first)
	require.False(t, in, "it was ended")
	w.end(third)
	require.EqualValues(t, 750, account.Used())
	require.Zero(t, w.stats())
}
