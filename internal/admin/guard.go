package admin

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
)

// Guard lets only clients with a right see the pages, except for those that probes read. A
// client shows a token as Authorization: Bearer, or the certificate of its connection.
type Guard struct {
	Auth *auth.Authority
	// Audit is told of refusals, and of pages for administrators. It must return soon.
	Audit func(audit.Event)

	refused atomic.Uint64
}

// Refused counts the requests that were refused. g may be nil.
func (g *Guard) Refused() uint64 {
	if g == nil {
		return 0
	}
	return g.refused.Load()
}

// right is what a client needs to see a page.
type right int

const (
	monitor right = iota + 1
	administer
)

// protect returns a handler that needs a right. A nil guard protects nothing.
func (g *Guard) protect(needed right, page http.Handler) http.Handler {
	if g == nil {
		return page
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := g.session(r).Identity(time.Now())
		switch {
		case err != nil:
			g.refuse(w, r, nil, http.StatusUnauthorized, err.Error()+": for these pages as Authorization: Bearer")
		case needed == administer && !who.MayAdminister():
			g.refuse(w, r, who, http.StatusForbidden, fmt.Sprintf("%q is no administrator (kvd token new --admin)", who.Name))
		case !who.MayMonitor():
			g.refuse(w, r, who, http.StatusForbidden, fmt.Sprintf("%q may not read these pages (kvd token new --monitor)", who.Name))
		default:
			if needed == administer {
				g.Audit(audit.Event{Kind: audit.Admin, Identity: who.Name, Peer: r.RemoteAddr, Method: r.Pattern})
			}
			page.ServeHTTP(w, r)
		}
	})
}

// session returns nil for a client that has shown nothing.
func (g *Guard) session(r *http.Request) *auth.Session {
	const scheme = "bearer "
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		v := values[0]
		if len(values) > 1 || len(v) <= len(scheme) || !strings.EqualFold(v[:len(scheme)], scheme) {
			v = scheme // signs no client in
		}
		return g.Auth.SignIn(strings.TrimSpace(v[len(scheme):]))
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return g.Auth.SignInByCertificate(r.TLS.VerifiedChains[0][0])
	}
	return nil
}

func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, who *auth.Identity, status int, why string) {
	g.refused.Add(1)
	e := audit.Event{Kind: audit.Refused, Peer: r.RemoteAddr, Method: r.Pattern, Reason: why}
	if who != nil {
		e.Identity = who.Name
	}
	g.Audit(e)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="kvd"`)
	}
	plain(w, status)
	fmt.Fprintln(w, why)
}
