package admin

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Every page has a rule, and each is kept for every kind of client.
func TestPagesAreForThoseWithTheRight(t *testing.T) {
	fsys := vfs.NewMem()
	var entries []auth.Entry
	tokens := map[string]string{"nobody": "", "unknown": "kvd1.0123456789abcdef.x"}
	for name, i := range map[string]auth.Identity{
		"reader": {Read: []string{""}, Write: []string{""}}, "monitor": {Monitor: true}, "admin": {Admin: true},
		"expired": {Admin: true, Expires: time.Now().Add(-time.Second)},
	} {
		token, id, hash := auth.NewToken()
		i.Name, i.TokenID, tokens[name] = name, id, token
		entries = append(entries, auth.Entry{Identity: i, Hash: hash})
	}
	entries = append(entries, auth.Entry{Identity: auth.Identity{Name: "by certificate", Certificate: "kvd:ops", Admin: true}})
	text, err := auth.Encode(entries)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteAtomic(fsys, "tokens", text))
	authority, err := auth.Open(fsys, "tokens", func(error) {})
	require.NoError(t, err)
	var events []audit.Event
	g := &Guard{Auth: authority, Audit: func(e audit.Event) { events = append(events, e) }}
	handler := Handler(sample(), g)
	ask := func(path string, change func(r *http.Request)) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		change(r)
		handler.ServeHTTP(w, r)
		if w.Code == http.StatusUnauthorized {
			assert.Equal(t, `Bearer realm="kvd"`, w.Header().Get("WWW-Authenticate"))
		}
		return w.Code
	}
	none, known, monitors, admins := 0, 1, 2, 3
	ranks := map[string]int{"nobody": none, "unknown": none, "expired": none, "reader": known, "monitor": monitors, "admin": admins}
	refused := uint64(0)
	for path, needed := range map[string]int{
		"/": none, "/livez": none, "/readyz": none, "/readyz?verbose": none, "/metrics": monitors, "/status.txt": monitors,
		"/debug/pprof/": admins, "/debug/pprof/cmdline": admins, "/debug/pprof/heap": admins, "/debug/pprof/symbol": admins,
	} {
		for name, token := range tokens {
			want := http.StatusOK
			switch rank := ranks[name]; {
			case rank >= needed:
			case rank == none:
				want = http.StatusUnauthorized
			default:
				want = http.StatusForbidden
			}
			if want != http.StatusOK {
				refused++
			}
			got := ask(path, func(r *http.Request) {
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
			})
			assert.Equal(t, want, got, "%s by %s", path, name)
		}
	}
	assert.Equal(t, refused, g.Refused())
	for _, e := range events {
		assert.NotEmpty(t, e.Peer)
		assert.NotEmpty(t, e.Method)
		for name, token := range tokens {
			assert.NotContains(t, e.Reason, "kvd1.", "%s %s", name, token)
		}
	}

	// Odd headers sign no client in, and a header takes precedence over a certificate.
	ops := &x509.Certificate{URIs: []*url.URL{{Scheme: "kvd", Opaque: "ops"}}, NotAfter: time.Now().Add(time.Hour)}
	certified := func(r *http.Request) { r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{ops}}} }
	assert.Equal(t, http.StatusOK, ask("/debug/pprof/cmdline", certified))
	for _, values := range [][]string{{"Basic " + tokens["admin"]}, {tokens["admin"]}, {"Bearer"}, {"Bearer " + tokens["admin"], "Bearer " + tokens["admin"]}} {
		assert.Equal(t, http.StatusUnauthorized, ask("/metrics", func(r *http.Request) {
			certified(r)
			r.Header["Authorization"] = values
		}), "%v", values)
	}
	assert.Equal(t, http.StatusOK, ask("/metrics", func(r *http.Request) { r.Header.Set("Authorization", "bearer  "+tokens["monitor"]) }))
}
