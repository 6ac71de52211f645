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

// Authorize returns who a client is, if it may call a method. Without authentication it is
// nil, and every client may do everything. What the method does with keys is judged later, by
// what it asks the Server for.
func (s *Server) Authorize(session *auth.Session, r Rule, now time.Time) (*auth.Identity, error) {
	if s.options.Auth == nil || r == Public {
		return nil, nil
	}
	who, err := session.Identity(now)
	if err != nil {
		return nil, s.unauthenticated(err)
	}
	switch r {
	case SignedIn:
		return who, nil
	case ByKey:
		if who.MaySomething() {
			return who, nil
		}
	case Admin:
		if who.MayAdminister() {
			return who, nil
		}
	}
	return nil, s.denied(who, "call this method")
}

// Recheck returns an error if the client of a call that lasts may no longer read a range: its
// token was revoked or has expired, or its rights have changed.
func (s *Server) Recheck(c *Call, r kv.Range) (err error) {
	if c.Who, err = s.Authorize(c.Session, ByKey, time.Now()); err != nil {
		return err
	}
	return s.mayReadRange(c.Who, r)
}

func (s *Server) unauthenticated(err error) *Error {
	s.counters.unauthenticated.Add(1)
	s.options.Audit(audit.Event{Kind: audit.Refused, Reason: err.Error()})
	return &Error{Code: Unauthenticated, Reason: reason.Unauthenticated, Message: err.Error()}
}

// denied refuses what an identity may not do. It does not tell whether a key exists.
func (s *Server) denied(who *auth.Identity, what string) *Error {
	if who == nil {
		return s.unauthenticated(auth.ErrNoCredentials)
	}
	s.counters.denied.Add(1)
	s.options.Audit(audit.Event{Kind: audit.Refused, Identity: who.Name, Reason: what})
	return &Error{
		Code: PermissionDenied, Reason: reason.PermissionDenied,
		Message: fmt.Sprintf("%q may not %s; nothing was done. Ask the operator of the server for the right", who.Name, what),
	}
}

func (s *Server) mayRead(who *auth.Identity, key []byte) error {
	if s.options.Auth == nil || who.MayRead(key) {
		return nil
	}
	return s.denied(who, "read this key, which conditions and returned items need, too")
}

func (s *Server) mayWrite(who *auth.Identity, key []byte) error {
	if s.options.Auth == nil || who.MayWrite(key) {
		return nil
	}
	return s.denied(who, "write this key")
}

func (s *Server) mayReadRange(who *auth.Identity, r kv.Range) error {
	if s.options.Auth == nil || who.MayReadRange(r.Start, r.End) {
		return nil
	}
	return s.denied(who, "read all of this range")
}

func (s *Server) mayWriteRange(who *auth.Identity, r kv.Range) error {
	if s.options.Auth == nil || who.MayWriteRange(r.Start, r.End) {
		return nil
	}
	return s.denied(who, "write all of this range")
}
