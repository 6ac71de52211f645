package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// Receiver performs the writes that other nodes forward to this one. Safe for concurrent use.
type Receiver struct {
	server  *service.Server
	methods map[string]*service.Method // by full name

	mu    sync.Mutex
	nodes map[uint64]*service.Conn
}

// NewReceiver returns the receiver of a server that does not serve yet.
func NewReceiver(s *service.Server) *Receiver {
	r := &Receiver{server: s, methods: map[string]*service.Method{}, nodes: map[uint64]*service.Conn{}}
	for full, m := range methods {
		r.methods[full] = s.Method(m.name, service.Writes, service.ByKey)
	}
	return r
}

// Way is the way to the node that forwards a write; a *peer.Forwarded is one.
type Way interface {
	// Read returns the message of the write.
	Read() ([]byte, error)
	// Answer sends the outcome and the answer, which it borrows.
	Answer(outcome *peerpb.ForwardOutcome, answer []byte) error
}

// Perform performs a write that the node from forwards, and answers it. An error says that it was
// not begun.
func (r *Receiver) Perform(ctx context.Context, from uint64, head *peerpb.ForwardHead, f Way) error {
	s, m := r.server, r.methods[head.GetMethod()]
	if m == nil {
		return fmt.Errorf("this version of kvd does not take the method %q from other nodes", head.GetMethod())
	}
	ctx, cancel := context.WithTimeout(ctx, s.MaxDeadline())
	defer cancel()
	defer context.AfterFunc(s.Working(), cancel)()
	caller := service.Caller{Identity: identityOf(head.GetClient()), Conn: r.connOf(from), Method: head.GetMethod()}
	w := &write{server: s, method: m, head: head, call: service.Call{Begun: time.Now(), Caller: caller, PeerEpoch: head.GetEpoch()}}
	w.call.Budget.Charge(s.Memory())
	defer w.call.Budget.Return()
	defer w.release()
	answer, err := w.perform(service.WithConn(ctx, caller.Conn), f)
	if lost, ok := errors.AsType[notRead](err); ok {
		return lost.error
	}
	outcome, code := &peerpb.ForwardOutcome{Stages: sentStages(w.call.Stages())}, service.OK
	if err != nil {
		why := s.Failure(m, err)
		code, outcome.Failure = why.Code, failureOf(why)
	}
	m.Count(code, 1)
	if w.call.Store() > 0 {
		s.Finish(caller.Conn, m, code, &w.call, func() service.Load { return messages.LoadOf(w.request) })
	}
	_ = f.Answer(outcome, answer) // if the other node has gone, there is no receiver
	return nil
}

// write is one write that another node forwards.
type write struct {
	server   *service.Server
	method   *service.Method
	head     *peerpb.ForwardHead
	call     service.Call
	request  proto.Message
	held     int64 // of the server's memory
	releases []func()
}

// release gives back what the write holds.
func (w *write) release() {
	for _, release := range w.releases {
		release()
	}
}

// perform returns the answer of the write.
func (w *write) perform(ctx context.Context, f Way) (answer []byte, err error) {
	s := w.server
	defer s.Recover(w.method, &err)
	if err := w.admit(ctx); err != nil {
		return nil, err
	}
	message, err := f.Read()
	if err != nil {
		return nil, notRead{err}
	}
	m := methods[w.head.GetMethod()]
	w.request = m.request()
	if err := messages.Decode(s, &w.call, message, w.request, func(bytes int64) error { return w.reserve(ctx, bytes) }); err != nil {
		return nil, err
	}
	response, err := m.perform(ctx, s, &w.call, w.method, w.request)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(response)
}

// notRead is the error of a message that did not come.
type notRead struct{ error }

// admit takes a place and the memory for the write, before its message is read.
func (w *write) admit(ctx context.Context) error {
	s, conn := w.server, w.call.Conn
	if s.Options().Auth != nil && w.call.Identity == nil {
		return &service.Error{
			Code: service.Unauthenticated, Reason: reason.Unauthenticated,
			Message: "the node that was called knows no identities, and the one that leads does: all nodes need --tokens, or --client-ca; nothing was done",
		}
	}
	leave, err := s.Enter()
	if err != nil {
		return err
	}
	w.releases = append(w.releases, leave)
	if !conn.EnterCall() {
		return s.Shed(service.ShedByStreams)
	}
	w.releases = append(w.releases, conn.LeaveCall)
	if limit := service.MessageBytes(s.Limits()); w.head.GetBytes() > uint64(limit) {
		return service.TooLarge("the request has %d bytes, limit is %d", w.head.GetBytes(), limit)
	}
	return w.reserve(ctx, w.method.RequestBytes(int(w.head.GetBytes())))
}

// reserve waits for memory.
func (w *write) reserve(ctx context.Context, bytes int64) error {
	account := w.server.Memory()
	if err := account.Wait(ctx, bytes, w.held); err != nil {
		return w.server.NoMemory(err)
	}
	w.held += bytes
	w.call.Held = w.held
	w.releases = append(w.releases, func() { account.Give(bytes) })
	return nil
}

// connOf returns what stands for a node among the connections of clients.
func (r *Receiver) connOf(node uint64) *service.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.nodes[node]
	if c == nil {
		c = service.NewConn(r.server, nodeConn{node: node})
		r.nodes[node] = c
	}
	return c
}

// nodeConn has the address that logs show of a node. It carries nothing.
type nodeConn struct {
	net.Conn
	node uint64
}

// RemoteAddr implements net.Conn.
func (c nodeConn) RemoteAddr() net.Addr { return nodeAddr(c.node) }

type nodeAddr uint64

func (nodeAddr) Network() string  { return "node" }
func (a nodeAddr) String() string { return fmt.Sprintf("node %d", uint64(a)) }
