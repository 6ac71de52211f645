package grpcapi

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/tap"

	"github.com/kvd-db/kvd/internal/memory"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/frameapi"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// call is the context of an admitted call, and what the call is charged for. The tap makes
// it before the body of the request is read; until the request is complete the call is
// charged for what has arrived (see service.Waits and intake). gRPC then uses it as the
// context of the stream: its deadline and its cancel end whatever the handler or the
// transport waits for.
//
// It is released once: by the interceptor that claimed it, or by the end of the context if
// no handler ran.
type call struct {
	context.Context
	api     *api
	method  *service.Method
	conn    *connection
	stream  uint32
	charged int64
	work    service.Call // of a unary call, and the budget of a scan
	counted bool         // it has a share of the calls that are being served

	// wait is there until the request has come; of a long-lived stream to its end.
	// waits nil: neither.
	wait  service.Wait
	waits *service.Waits
	came  int // bytes of the request, with service.PartCost; of the goroutine that reads the connection
	// unread is what a long-lived stream has not taken yet.
	unread atomic.Int64
	// busy: a long-lived stream does not wait for its client. pipeline tells of one.
	busy     atomic.Bool
	pipeline atomic.Pointer[frameapi.Pipeline]
	rule     service.Rule
	rights   *rights // of a scan, backup or scrub; nil before its handler begins, and for others

	// message is the one that is coming. Only the goroutine that reads the connection uses
	// it; once a unary call is long its handler also reads the length.
	message message
	// signal has a value when the handler should look at what follows.
	signal  chan struct{}
	here    atomic.Bool  // the request has come, or nothing more of it will
	tooLong atomic.Int64 // the length of the message that exceeds the limit; 0: none does
	// announced counts the messages of a long-lived stream whose length has come and is
	// within the limit. Of these, received went to the handler, which alone uses the count.
	announced atomic.Uint64
	received  uint64
	long      atomic.Bool             // it is too long to come without a place in the intake
	ended     atomic.Bool             // the call is ended to make room for others, before its request has come
	arrival   atomic.Pointer[arrival] // set once a long one has a place in the intake, and waits do not have it
	// kill ends the call. The client of a stream is told CANCELLED, since gRPC sends that by
	// itself; the cause is for the counters.
	kill context.CancelCauseFunc
	// stall kills a long-lived stream when it runs out: at first if its request
	// does not come, later as its handler sets it.
	stall *time.Timer
	// expire ends a call that came without a deadline, or with one that was cut; nil for
	// others. It is not called: the answer is written after the handler returned and
	// needs the context, and the end of the stream, which ends ctx, frees the timer.
	expire context.CancelFunc
	// claim takes the release away from the end of the context. It returns false
	// if that came first.
	claim   func() bool
	claimed bool // by the handler, before the interceptor
}

type callKey struct{}

func (c *call) Value(key any) any {
	switch key {
	case callKey{}:
		return c
	case service.ConnKey():
		return c.conn.Conn
	}
	return c.Context.Value(key)
}

// callOf returns the call that a context is of.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// admit is the tap handle. It must not block.
func (a *api) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	c := &call{api: a, method: a.methodOf(info.FullMethodName), conn: connectionOf(ctx), waits: a.server.CallWaits()}
	c.work.Conn = c.conn.Conn
	if why := c.conn.refused; why != nil {
		c.method.Count(why.Code, 1)
		return ctx, statusError{why}
	}
	if err := c.signIn(info); err != nil {
		return ctx, err
	}
	if isHealth(info.FullMethodName) {
		c.waits = a.server.HealthWaits()
	}
	c.Context, c.kill = context.WithCancelCause(ctx)
	c.wait.Conn, c.wait.Evict = c.conn.Conn, c.evict
	c.signal = make(chan struct{}, 1)
	long := longLived(info.FullMethodName)
	if long {
		c.wait.Idle = c.idle
	}
	if !c.waits.Begin(&c.wait) {
		c.kill(nil)
		return ctx, statusError{a.shed(c.method, service.ShedByStreams)}
	}
	o := a.server.Options()
	if long {
		c.stall = time.AfterFunc(o.Deadline, func() { c.kill(context.DeadlineExceeded) })
	} else if deadline, has := ctx.Deadline(); !has {
		// #nosec G118 -- ends with its parent, when the stream ends: see expire
		c.Context, c.expire = context.WithTimeout(c.Context, min(o.Deadline, a.server.MaxDeadline()))
	} else if latest := time.Now().Add(a.server.MaxDeadline()); deadline.After(latest) {
		// #nosec G118 -- ends with its parent, when the stream ends: see expire
		c.Context, c.expire = context.WithDeadline(c.Context, latest)
	}
	c.conn.bind(c)
	c.claim = context.AfterFunc(c.Context, c.release)
	return c, nil
}

// unary reports whether the call has one request, which it waits for.
func (c *call) unary() bool { return c.wait.Idle == nil }

// idle reports whether a long-lived stream waits for its client.
func (c *call) idle() bool {
	if p := c.pipeline.Load(); p != nil {
		return !p.Serving()
	}
	return !c.busy.Load()
}

// evict ends a call that waits for its client, to make room for others.
func (c *call) evict() {
	if c.ended.Swap(true) {
		return
	}
	why := c.api.server.Shed(service.ShedByWait)
	if c.wait.Bytes() == 0 { // more than a few bytes are no flood of empty requests
		c.conn.Waste()
	}
	if c.unary() {
		c.wake()
		return
	}
	c.kill(why)
}

// wake has the handler look at what has changed.
func (c *call) wake() {
	select {
	case c.signal <- struct{}{}:
	default: // it has not looked since the last time
	}
}

// freeBytes of a request are not counted while it comes: most have no more. As many
// requests as may wait have a few megabytes of them.
const freeBytes = 4 << 10

// arrived is told of the parts of the request, by the goroutine that reads them.
func (c *call) arrived(bytes int) {
	if a := c.arrival.Load(); a != nil {
		a.came(int64(bytes) + service.PartCost)
		return
	}
	if c.wait.Idle != nil {
		c.unread.Add(int64(bytes))
	}
	bytes += service.PartCost
	before := c.came
	if c.came += bytes; c.came <= freeBytes && c.wait.Idle == nil {
		return
	}
	if c.wait.Idle == nil {
		bytes = c.came - max(before, freeBytes)
	}
	if c.waits.Grow(&c.wait, bytes) || c.wait.Idle != nil {
		return
	}
	if a := c.arrival.Load(); a != nil {
		a.came(int64(bytes)) // it got its place in this moment
		return
	}
	c.conn.unbind(c)
}

// took is told of each message that a long-lived stream has taken.
func (c *call) took(bytes int) {
	left := max(0, c.unread.Add(-int64(bytes)))
	c.waits.ShrinkTo(&c.wait, left, left+int64(bytes))
}

// come ends the wait for the request of a unary call, and takes a share of the calls that
// are being served.
func (c *call) come() error {
	c.conn.unbind(c)
	if c.arrival.Load() == nil {
		held, in := c.waits.HandOver(&c.wait)
		if !in {
			// The eviction could hit the call at any later moment.
			return service.ShedError(service.ShedByWait)
		}
		c.charged = held
	}
	if c.waits.IsForHealth() {
		return nil
	}
	if !c.api.readsAnswers(c.conn) {
		c.api.server.Memory().Sweep(memory.Patience) // some may be gone
		return c.api.server.Shed(service.ShedByBytes)
	}
	if c.counted = c.conn.EnterCall(); !c.counted {
		return c.api.server.Shed(service.ShedByStreams)
	}
	return nil
}

// isHealth reports whether a call is a health check, which is answered in any overload.
func isHealth(fullMethod string) bool { return strings.HasPrefix(fullMethod, "/grpc.health.") }

// longLived reports whether a stream may last longer than the default deadline.
func longLived(fullMethod string) bool {
	switch fullMethod {
	case kvdpb.KVService_Scan_FullMethodName, kvdpb.KVService_Pipeline_FullMethodName, healthpb.Health_Watch_FullMethodName,
		kvdpb.AdminService_Backup_FullMethodName, kvdpb.AdminService_Scrub_FullMethodName:
		return true
	}
	return strings.HasPrefix(fullMethod, "/grpc.reflection.")
}

// shed counts a call that is refused.
func (a *api) shed(m *service.Method, reason service.Shed) *service.Error {
	e := a.server.Shed(reason)
	m.Count(e.Code, 1)
	return e
}

// resize changes the charge of a claimed call to what the request occupies, and waits until
// there is memory for it.
func (c *call) resize(bytes int64) error {
	if more := bytes - c.charged; more > 0 {
		if err := c.api.server.Memory().Wait(c, more, c.charged); err != nil {
			return c.api.server.NoMemory(err)
		}
	} else {
		c.api.server.Memory().Give(-more)
	}
	c.charged = bytes
	return nil
}

// leaveIntake gives up the place in the intake of a call with a long request.
func (c *call) leaveIntake() {
	if a := c.arrival.Load(); a != nil {
		c.api.intake.leave(a)
	}
}

func (c *call) release() {
	c.leaveIntake()
	if c.stall != nil {
		c.stall.Stop()
	}
	c.waits.End(&c.wait)
	c.conn.unbind(c)
	c.api.server.Memory().Give(c.charged)
	if c.counted {
		c.conn.LeaveCall()
	}
}
