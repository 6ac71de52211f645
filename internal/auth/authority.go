package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/livefile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Why a client has no identity. The texts go to clients.
var (
	ErrNoCredentials = errors.New("the server wants to know who the client is; sign in with a token or a client certificate")
	ErrUnknown       = errors.New("the server does not know this token or client certificate, or it was revoked")
	ErrExpired       = errors.New("this token or client certificate has expired; ask for a new one")
)

// Authority knows the identities. Safe for concurrent use.
type Authority struct {
	*livefile.Watcher // nil: there is no file
	table             atomic.Pointer[table]
}

type table struct {
	tokens       map[string]*Entry    // by id
	certificates map[string]*Identity // by CertificateName
	usages       map[string]*Usage    // by name, of those that have a quota
	order        []string             // of usages, as in the file
	// anyCertificate: every certificate that TLS has verified may do everything.
	anyCertificate bool
}

// ForCertificates returns an authority for which every verified certificate may do
// everything, and a client without one nothing.
func ForCertificates() *Authority {
	a := new(Authority)
	a.table.Store(&table{anyCertificate: true})
	return a
}

// Open reads the identities of a file. report is told when a new file is in use (nil), or
// why it is not.
func Open(fsys vfs.FS, name string, report func(error)) (*Authority, error) {
	a := new(Authority)
	use := func(contents [][]byte) error {
		if err := checkWriters(fsys, name); err != nil {
			return err
		}
		entries, err := Decode(contents[0])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		a.table.Store(tableOf(entries, a.table.Load()))
		return nil
	}
	var err error
	a.Watcher, err = livefile.Open(livefile.Files{FS: fsys, Names: []string{name}, Use: use, Report: report})
	return a, err
}

func checkWriters(fsys vfs.FS, name string) error {
	info, _, err := vfs.StatFollowed(fsys, name)
	if err != nil {
		return err
	}
	const others = 0o022
	if info.Mode().IsRegular() && info.Mode().Perm()&others != 0 {
		return fmt.Errorf("%s: users other than its owner may write to it (mode %04o), and could give themselves rights; chmod it to 0600 or 0644", name, info.Mode().Perm())
	}
	return nil
}

// tableOf returns a table of entries. What the names in an older table, which may be nil, use
// of their quotas goes on.
func tableOf(entries []Entry, older *table) *table {
	t := &table{tokens: make(map[string]*Entry), certificates: make(map[string]*Identity), usages: make(map[string]*Usage)}
	for i := range entries {
		e := &entries[i]
		if e.Quota != (Quota{}) {
			e.usage = t.usageOf(e.Name, older)
			e.usage.setQuota(e.Quota)
		}
		if e.TokenID != "" {
			t.tokens[e.TokenID] = e
		} else {
			name, _ := CertificateName(e.Certificate) // Decode has checked it
			t.certificates[name] = &e.Identity
		}
	}
	return t
}

func (t *table) usageOf(name string, older *table) *Usage {
	u := t.usages[name]
	if u != nil {
		return u
	}
	if older != nil {
		u = older.usages[name]
	}
	if u == nil {
		u = &Usage{name: name}
	}
	t.usages[name] = u
	t.order = append(t.order, name)
	return u
}

// maxNamedUsages is how many names have counters of their own. Guessed: metrics of more are
// expensive to keep for what collects them.
const maxNamedUsages = 200

// Usages returns what names use of their quotas: one by one for the first ones of the file,
// and together, without a name, for all others.
func (a *Authority) Usages() (all []NamedUsage) {
	t := a.table.Load()
	var others NamedUsage
	for i, name := range t.order {
		counts := t.usages[name].Counts()
		if i < maxNamedUsages {
			all = append(all, NamedUsage{name, counts})
		} else {
			others.add(&counts)
		}
	}
	if len(t.order) > maxNamedUsages {
		all = append(all, others)
	}
	return all
}

// Identities returns how many there are.
func (a *Authority) Identities() int {
	t := a.table.Load()
	return len(t.tokens) + len(t.certificates)
}

// Session is what a client has shown of itself. What that is worth is looked up in the newest
// identities, so it ends when a token is revoked. Safe for concurrent use. Nil is a client
// that has shown nothing.
type Session struct {
	authority *Authority
	id        string
	hash      [sha256.Size]byte
	names     []string  // of the certificate
	until     time.Time // when the certificate expires; zero: never
	known     atomic.Pointer[resolved]
}

// resolved is a session in one table of identities.
type resolved struct {
	in       *table
	identity *Identity // nil: it has none
}

// SignIn returns the session of a token.
func (a *Authority) SignIn(token string) *Session {
	return &Session{authority: a, id: tokenID(token), hash: sha256.Sum256([]byte(token))}
}

// Shows reports whether the session is that of a token.
func (s *Session) Shows(token string) bool {
	return s != nil && len(s.names) == 0 && sameHash(s.hash, sha256.Sum256([]byte(token)))
}

// SignInByCertificate returns the session of a certificate that TLS has verified.
func (a *Authority) SignInByCertificate(c *x509.Certificate) *Session {
	return &Session{authority: a, names: certificateNames(c), until: c.NotAfter}
}

// Identity returns who the client is at a time.
//
// Errors: ErrNoCredentials, ErrUnknown, ErrExpired.
func (s *Session) Identity(now time.Time) (*Identity, error) {
	if s == nil {
		return nil, ErrNoCredentials
	}
	newest := s.authority.table.Load()
	r := s.known.Load()
	if r == nil || r.in != newest {
		r = &resolved{newest, s.lookup(newest)}
		s.known.Store(r)
	}
	switch {
	case r.identity == nil:
		return nil, ErrUnknown
	case expired(s.until, now), expired(r.identity.Expires, now):
		return nil, ErrExpired
	}
	return r.identity, nil
}

func expired(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

func (s *Session) lookup(t *table) *Identity {
	for _, name := range s.names {
		if t.anyCertificate {
			all := []string{""}
			return &Identity{Name: name, Certificate: name, Read: all, Write: all, Admin: true}
		}
		if i := t.certificates[name]; i != nil {
			return i
		}
	}
	e := t.tokens[s.id]
	if e == nil || !sameHash(e.Hash, s.hash) {
		return nil
	}
	return &e.Identity
}
