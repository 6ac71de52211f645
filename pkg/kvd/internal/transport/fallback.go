package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// fallback is the use of gRPC for frames because a server did not take raw frames.
// Guarded by the connection's lock.
type fallback struct {
	until time.Time // not asked for raw frames before
	// spoke: there has been a frameConn of raw frames.
	spoke bool
	// tries counts the requests for raw frames since then that were in vain.
	tries int
}

const (
	// grpcFor is how long a connection does not ask for raw frames again after its
	// server answered in another protocol, and the most after it did not answer.
	// Guessed: between a proxy, where it is always in vain, and a server that is being
	// upgraded.
	grpcFor = 2 * time.Minute
	// regainBase is the first of the waits after a server that did not answer, or spoke
	// raw frames before; each is twice the one before, up to regainMax if it did speak
	// raw frames and up to grpcFor else. All are ± 20 %. Guessed: a server that stood
	// still may be at work again at any time, and asking it costs one connection.
	regainBase = time.Second
	regainMax  = 5 * time.Second
)

// answeredOtherwise reports whether an error of dialRaw leaves the hope that the server
// speaks gRPC.
func answeredOtherwise(err error) bool {
	return errors.Is(err, errOtherProtocol) || errors.Is(err, errNoAnswer) || errors.Is(err, errHungUp)
}

// asksForRaw reports whether it is time to ask for raw frames.
func (c *conn) asksForRaw() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().After(c.mu.grpc.until)
}

// tryRaw asks for a raw connection and notes what came of it.
func (c *conn) tryRaw(ctx context.Context) (frameTransport, error) {
	transport, err := c.dialRaw(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.mu.grpc.failed(err, time.Now())
		return nil, err
	}
	c.mu.grpc = fallback{spoke: true}
	return transport, nil
}

// failed notes that the server did not take raw frames. One that hung up, or could not be
// reached, is asked by the next frameConn whatever the time.
func (f *fallback) failed(err error, now time.Time) {
	f.tries++
	switch {
	case errors.Is(err, errOtherProtocol) && !f.spoke:
		f.until = now.Add(grpcFor)
	case errors.Is(err, errOtherProtocol), errors.Is(err, errNoAnswer):
		f.until = now.Add(f.wait())
	}
}

// wait is how long it is, after the last try, until raw frames are asked for again while
// there is a frameConn by gRPC.
func (f *fallback) wait() time.Duration {
	longest := grpcFor
	if f.spoke {
		longest = regainMax
	}
	wait := regainBase
	for range f.tries - 1 {
		wait = min(2*wait, longest)
	}
	return time.Duration(float64(wait) * (1 + reconnectJitter*(2*rand.Float64()-1)))
}

// regainRaw replaces a frameConn by gRPC by one of raw frames as soon as the server takes them:
// a stream lasts for minutes, and a server that stood still for seconds is not to be paid
// for as long.
func (c *conn) regainRaw(fc *frameConn) {
	for {
		c.mu.Lock()
		wait := time.Until(c.mu.grpc.until)
		if wait <= 0 {
			wait = c.mu.grpc.wait()
		}
		c.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-fc.done:
			timer.Stop()
			return
		case <-c.client.life.Done():
			timer.Stop()
			return
		}
		if transport, err := c.tryRaw(c.client.life); err == nil {
			c.replace(fc, transport)
			return
		}
	}
}

// replace makes a transport the current frameConn in place of k, which is left once what is
// under way on it has been answered, and runs it until it ends.
func (c *conn) replace(fc *frameConn, transport frameTransport) {
	next := c.newFrameConn(transport)
	c.mu.Lock()
	if c.mu.current != fc {
		c.mu.Unlock()
		transport.close() // there is another one, or will be when it is needed
		return
	}
	fc.retired = true
	c.currentLocked(next)
	fc.settle()
	next.run()
}
