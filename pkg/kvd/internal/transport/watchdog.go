package transport

import (
	"errors"
	"time"
)

// watchdog bounds the calls of a connection, so that they need no timers of their own. It wakes the
// callers of frames that are older than the client's timeout, and ends frameConns on which nothing
// arrives. It runs once per tick while there are frames. It is guarded by conn.mu.
type watchdog struct {
	timer   *time.Timer
	running bool
}

const (
	// maxTick bounds a tick: a call ends at most two ticks after the client's timeout. Guessed;
	// a tick costs a few microseconds.
	maxTick = 50 * time.Millisecond
	minTick = time.Millisecond

	// minSilence is the time after which a frameConn counts as broken if it has frames in flight
	// and nothing arrives. The time is longer if a caller waits longer, up to maxSilence, to which
	// servers cut the deadlines of calls by default: one caller that waits for an hour must not keep
	// a lost connection for all others.
	minSilence = 10 * time.Second
	maxSilence = time.Minute

	// silenceOfSeveral is the time after which an endpoint of several is asked whether it serves
	// requests, and the time that it has to answer. It is asked again as long as the silence lasts.
	// Another endpoint may serve the calls within their timeout.
	silenceOfSeveral = time.Second
)

var errSilent = unavailable(errors.New("nothing has come from the server for too long"))

func (c *conn) tick() time.Duration {
	timeout := c.client.options.Timeout
	if timeout == 0 {
		return maxTick
	}
	return max(min(timeout/16, maxTick), minTick)
}

// watchLocked starts the watchdog if it is not running.
func (c *conn) watchLocked() {
	w := &c.mu.watchdog
	if w.running {
		return
	}
	w.running = true
	now := time.Now()
	for _, fc := range c.mu.frameConns {
		fc.heard = now
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(c.tick(), c.look)
	} else {
		w.timer.Reset(c.tick())
	}
}

// look is one tick of the watchdog.
func (c *conn) look() {
	c.mu.Lock()
	now := time.Now()
	var rounds []chan struct{}
	var interrupted []callerTransport
	expire := func(frames []*pendingFrame) (expired bool) {
		for _, f := range frames {
			if timeout := c.client.options.Timeout; timeout > 0 && !f.expired && now.Sub(f.created) >= timeout {
				f.expired = true
				rounds = append(rounds, f.roundLocked())
				expired = true
			}
		}
		return expired
	}
	busy := false
	for i := range c.mu.queues {
		q := &c.mu.queues[i]
		busy = busy || q.waiting()
		if q.open != nil && now.Sub(q.open.created) >= c.tick() {
			q.seal() // so all operations of a frame were added within two ticks
		}
		expire(q.sealed)
	}
	for _, fc := range c.mu.frameConns {
		busy = fc.watchTokenLocked() || busy || len(fc.frames) > 0
		if expire(fc.frames) && fc.token.holder == heldByCaller {
			interrupted = append(interrupted, fc.direct)
		}
		fc.listenLocked(now)
		for _, f := range fc.frames {
			if f.batchKey.calls() && now.Sub(f.created) >= 2*c.tick() {
				fc.leaveWindowLocked(f) // a call that takes long delays none that follow
			}
		}
	}
	c.wakeLocked() // a frame may have waited for company, or for the window
	c.mu.watchdog.running = busy
	if busy {
		c.mu.watchdog.timer.Reset(c.tick())
	}
	c.mu.Unlock()
	for _, wake := range rounds {
		close(wake)
	}
	for _, transport := range interrupted {
		transport.interrupt()
	}
}

// listenLocked ends a frameConn on which nothing has arrived for too long.
func (fc *frameConn) listenLocked(now time.Time) {
	if fc.received != fc.seen || len(fc.frames) == 0 {
		fc.seen, fc.heard = fc.received, now
		return
	}
	if fc.conn.client.endpoints > 1 && !fc.asking && now.Sub(fc.heard) >= silenceOfSeveral && now.Sub(fc.served) >= silenceOfSeveral {
		fc.asking = true
		received := fc.received
		fc.conn.client.background.Go(func() { fc.ask(received) }) // which fc keeps from ending
	}
	silence := minSilence
	for _, f := range fc.frames {
		silence = max(silence, min(f.longestWait, maxSilence))
	}
	if now.Sub(fc.heard) > silence {
		fc.hangUpLocked()
	}
}

func (fc *frameConn) hangUpLocked() {
	if !fc.silent {
		fc.silent = true
		fc.transport.close()
		fc.recallLocked()
	}
}

// hangUp ends the frameConn when the client is closed.
func (fc *frameConn) hangUp() {
	fc.transport.close()
	fc.conn.mu.Lock()
	defer fc.conn.mu.Unlock()
	fc.recallLocked()
}

// ask ends the frameConn if its endpoint does not serve requests, unless more than so many frames have
// been received meanwhile.
func (fc *frameConn) ask(received uint64) {
	c := fc.conn
	serves := c.serves(c.client.life, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	fc.asking = false
	switch {
	case serves:
		fc.served = time.Now()
	case fc.received == received:
		fc.hangUpLocked()
	}
}

// stop stops the watchdog. It is called when there are no calls and no frameConns any more.
func (c *conn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.watchdog.timer != nil {
		c.mu.watchdog.timer.Stop()
	}
}
