package service

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/reason"
)

// Rule says what a client must be to call a method. Every method names one: a server with a
// method without a rule does not start.
type Rule uint8

const (
	noRule Rule = iota
	// Public methods are for every client: health checks.
	Public
	// SignedIn methods are for every client that the server knows, and have no data.
	SignedIn
	// ByKey methods are for clients with a right to any data. Each operation is judged by
	// the keys and ranges that it reads and writes.
	ByKey
	// Admin methods are for administrators.
	Admin
)

// Caller is a client as far as one request goes.
type Caller struct {
	// Identity is what Authorize found. It is nil on a server without authentication, and if
	// the method is public.
	Identity *auth.Identity
	Conn     *Conn  // it came by; nil: by none
	Method   string // for the audit log

	begun bool // the call lasts, and has done something before it is judged again
}

// Refuse makes Serve fail, because a protocol cannot be served safely. It is called when a
// protocol is made.
func (s *Server) Refuse(err error) { s.unfit = errors.Join(s.unfit, err) }

// checkRules returns an error if a method has no rule.
func (s *Server) checkRules() error {
	s.methods.Lock()
	defer s.methods.Unlock()
	err := s.unfit
	for _, m := range s.methods.all {
		if m.rule == noRule {
			err = errors.Join(err, fmt.Errorf("method %s has no rule about its clients", m.name))
		}
	}
	return err
}

// Authorize finds the identity of a client, and returns an error if it may not call a method.
// Without authentication it is nil, and every client may do everything. What the method does
// with keys is judged later, by what it asks the Server for.
func (s *Server) Authorize(c *Caller, session *auth.Session, r Rule, now time.Time) (err error) {
	c.Identity = nil
	if s.options.Auth == nil || r == Public {
		return nil
	}
	identity, err := session.Identity(now)
	if err != nil {
		return s.unauthenticated(c, err)
	}
	if r == SignedIn || r == ByKey && identity.MaySomething() || r == Admin && identity.MayAdminister() {
		c.Identity = identity
		return nil
	}
	return s.denied(&Caller{Identity: identity, Conn: c.Conn, Method: c.Method, begun: c.begun}, "call this method")
}

// Recheck returns an error if the client of a call that lasts may no longer read a range: its
// token was revoked or has expired, or its rights have changed.
func (s *Server) Recheck(c *Call, r kv.Range) error {
	c.begun = true
	if err := s.Authorize(&c.Caller, c.Session, ByKey, time.Now()); err != nil {
		return err
	}
	return s.mayReadRange(&c.Caller, r)
}

// waitedLong is from which time on a call has waited so long that its client is judged again.
// Guessed: as often as the file of tokens is read, about.
const waitedLong = time.Second

// recheck returns an error if the client of a call that has waited long is not known any more. It
// reports whether the call has.
func (s *Server) recheck(c *Call) (waited bool, err error) {
	if s.options.Auth == nil || c.Session == nil || time.Since(c.Begun) < waitedLong {
		return false, nil
	}
	return true, s.Authorize(&c.Caller, c.Session, ByKey, time.Now())
}

// recheckReads judges the client of reads that have waited long before it gets their answers.
func (s *Server) recheckReads(c *Call, reads []*kv.Lookup) error {
	waited, err := s.recheck(c)
	if !waited || err != nil {
		return err
	}
	for _, l := range reads {
		s.rejudge(c, l)
	}
	return nil
}

// rejudge fails a read whose client may not have its answer any more.
func (s *Server) rejudge(c *Call, l *kv.Lookup) {
	if err := s.mayRead(&c.Caller, l.Key); err != nil {
		l.Err = err
	}
}

// recheckWrites judges the client of writes that have waited long before they are performed.
func (s *Server) recheckWrites(c *Call, writes []*kv.Write) error {
	waited, err := s.recheck(c)
	if !waited || err != nil {
		return err
	}
	for _, w := range writes {
		if err := s.mayWrite(&c.Caller, w.Op.Key); err != nil {
			return err
		}
		if w.If == nil && w.Previous == nil {
			continue
		}
		if err := s.mayRead(&c.Caller, w.Op.Key); err != nil {
			return err
		}
	}
	return nil
}

// RecheckAdmin returns an error if the client of a call that lasts is no administrator any more.
func (s *Server) RecheckAdmin(c *Call) error {
	c.begun = true
	return s.Authorize(&c.Caller, c.Session, Admin, time.Now())
}

func (s *Server) unauthenticated(c *Caller, err error) *Error {
	s.counters.unauthenticated.Add(1)
	s.options.Audit(audit.Event{Kind: audit.Refused, Peer: c.Conn.Name(), Method: c.Method, Reason: err.Error()})
	message := err.Error()
	if c.begun {
		message += "; the call was ended. Sign in with valid credentials and repeat it"
	}
	return &Error{Code: Unauthenticated, Reason: reason.Unauthenticated, Message: message}
}

// denied refuses what an identity may not do. It does not tell whether a key exists.
func (s *Server) denied(c *Caller, what string) *Error {
	identity := c.Identity
	if identity == nil {
		return s.unauthenticated(c, auth.ErrNoCredentials)
	}
	s.counters.denied.Add(1)
	s.options.Audit(audit.Event{Kind: audit.Refused, Identity: identity.Name, Peer: c.Conn.Name(), Method: c.Method, Reason: what})
	outcome := "nothing was done"
	if c.begun {
		outcome = "the call was ended"
	}
	return &Error{
		Code: PermissionDenied, Reason: reason.PermissionDenied,
		Message: fmt.Sprintf("%q may not %s; %s. Ask the operator of the server for the right", identity.Name, what, outcome),
	}
}

func (s *Server) mayRead(c *Caller, key []byte) error {
	if s.options.Auth == nil || c.Identity.MayRead(key) {
		return nil
	}
	return s.denied(c, "read this key, which conditions and returned items need, too")
}

func (s *Server) mayWrite(c *Caller, key []byte) error {
	if s.options.Auth == nil || c.Identity.MayWrite(key) {
		return nil
	}
	return s.denied(c, "write this key")
}

func (s *Server) mayReadRange(c *Caller, r kv.Range) error {
	if s.options.Auth == nil || c.Identity.MayReadRange(r.Start, r.End) {
		return nil
	}
	return s.denied(c, "read all of this range")
}

func (s *Server) mayWriteRange(c *Caller, r kv.Range) error {
	if s.options.Auth == nil || c.Identity.MayWriteRange(r.Start, r.End) {
		return nil
	}
	return s.denied(c, "write all of this range")
}
