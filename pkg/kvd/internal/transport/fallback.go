package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// fallback records that frames travel by gRPC because the server did not take raw frames. It is
// guarded by conn.mu.
type fallback struct {
	until time.Time // until then the server is not asked for raw frames
	// spoke: the server has taken raw frames before.
	spoke bool
	// tries counts the requests for raw frames that have failed since then.
	tries int
}

const (
	// grpcFor is the wait before the server is asked for raw frames again after it answered in
	// another protocol, and the longest wait after it did not answer. Guessed: a proxy never
	// takes them, but a server may be upgraded.
	grpcFor = 2 * time.Minute
	// regainBase is the first wait after a server did not answer, or had taken raw frames before.
	// Each wait is twice the previous one, up to regainMax if the server had taken raw frames and
	// up to grpcFor otherwise, ± 20 %. Guessed: a server that hung may recover at any time, and
	// asking it costs one connection.
	regainBase = time.Second
	regainMax  = 5 * time.Second
)

// answeredOtherwise reports whether the server may speak gRPC after dialRaw failed with err.
func answeredOtherwise(err error) bool {
	return errors.Is(err, errOtherProtocol) || errors.Is(err, errNoAnswer) || errors.Is(err, errHungUp)
}

// asksForRaw reports whether it is time to ask for raw frames.
func (c *conn) asksForRaw() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().After(c.mu.grpc.until)
}

// tryRaw asks for a connection for raw frames and records the result.
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

// failed records that the server did not take raw frames. If it hung up or could not be reached,
// the next frameConn asks again at any time.
func (f *fallback) failed(err error, now time.Time) {
	f.tries++
	switch {
	case errors.Is(err, errOtherProtocol) && !f.spoke:
		f.until = now.Add(grpcFor)
	case errors.Is(err, errOtherProtocol), errors.Is(err, errNoAnswer):
		f.until = now.Add(f.wait())
	}
}

// wait returns the wait before the server is asked for raw frames again while frames travel by
// gRPC.
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

// regainRaw replaces fc, whose frames travel by gRPC, as soon as the server takes raw frames. A
// stream lasts for minutes; without regainRaw a server that hung for seconds would cost that long.
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

// replace makes a frameConn of transport current in place of fc, and runs it until it ends. fc is
// finished when its frames have been answered.
func (c *conn) replace(fc *frameConn, transport frameTransport) {
	next := c.newFrameConn(transport)
	c.mu.Lock()
	if c.mu.current != fc {
		c.mu.Unlock()
		transport.close() // another frameConn is current, or is opened when it is needed
		return
	}
	fc.retired = true
	refused := c.currentLocked(next)
	fc.settle()
	wakeAll(refused)
	next.run()
}
