package auth_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// words are all words of up to two letters, of the first, a middle and the last byte.
func words() (all [][]byte) {
	all = append(all, []byte{})
	for _, a := range []byte{0, 'a', 'b', 0xff} {
		all = append(all, []byte{a})
		for _, b := range []byte{0, 'a', 'b', 0xff} {
			all = append(all, []byte{a, b}, []byte{a, b, 0}, []byte{a, b, 'a'}, []byte{a, b, 0xff})
		}
	}
	return all
}

// A range may be read if every key in it may. The reverse need not hold: a range that is
// empty, or covered by several prefixes, may be refused.
func TestARangeMayBeReadOnlyIfAllItsKeysMay(t *testing.T) {
	keys := words()[1:]
	allowed, refused := 0, 0
	for _, prefix := range words() {
		i := &auth.Identity{Read: []string{string(prefix)}}
		for _, key := range keys {
			assert.Equal(t, strings.HasPrefix(string(key), string(prefix)), i.MayRead(key))
			assert.False(t, i.MayWrite(key))
		}
		for _, start := range words() {
			for _, end := range words() {
				if !i.MayReadRange(start, end) {
					refused++
					continue
				}
				allowed++
				for _, key := range keys {
					in := string(key) >= string(start) && (len(end) == 0 || string(key) < string(end))
					if in && !i.MayRead(key) {
						t.Fatalf("prefix %q, range %q to %q: %q is in it", prefix, start, end, key)
					}
				}
				assert.False(t, i.MayWriteRange(start, end))
			}
		}
	}
	t.Logf("%d ranges allowed, %d refused", allowed, refused)
	assert.Greater(t, allowed, 1000)
	assert.Greater(t, refused, 1000)
}

func TestOpenEndsAreWithinTheEmptyPrefixAlone(t *testing.T) {
	i := &auth.Identity{Read: []string{"user/"}, Write: []string{""}}
	for _, c := range []struct {
		start, end string
		want       bool
	}{
		{"user/", "user0", true}, {"user/a", "user/b", true}, {"user/", "user/\xff\xff", true},
		{"user/", "", false}, {"", "user0", false}, {"", "", false}, {"user/", "user0\x00", false},
		{"user", "user0", false}, {"user/b", "user1", false}, {"user0", "user0", false},
	} {
		assert.Equal(t, c.want, i.MayReadRange([]byte(c.start), []byte(c.end)), "%q to %q", c.start, c.end)
		assert.True(t, i.MayWriteRange([]byte(c.start), []byte(c.end)))
	}
	last := &auth.Identity{Read: []string{"\xff\xff"}}
	assert.True(t, last.MayReadRange([]byte("\xff\xff\x01"), nil), "nothing follows the prefix")
}

// A prefix is bytes and no text: \x80 and \xfe end no UTF-8 character, and have successors.
func TestPrefixesThatAreNoTextHaveTheirOwnEnd(t *testing.T) {
	for _, c := range []struct{ prefix, end, beyond string }{
		{"a\x80", "a\x81", "a\x81\x00"}, {"a\xfe", "a\xff", "b"}, {"a\x80\xff", "a\x81", "b"}, {"\xe2\x82", "\xe2\x83", "\xe3"},
	} {
		i := &auth.Identity{Read: []string{c.prefix}}
		assert.True(t, i.MayReadRange([]byte(c.prefix), []byte(c.end)), "%q", c.prefix)
		assert.False(t, i.MayReadRange([]byte(c.prefix), []byte(c.beyond)), "%q", c.prefix)
	}
	last := &auth.Identity{Read: []string{"\x80"}}
	assert.False(t, last.MayReadRange([]byte("\x80"), nil), "\x81 follows")
}

func TestNobodyMayDoNothing(t *testing.T) {
	var nobody *auth.Identity
	for _, i := range []*auth.Identity{nobody, {}} {
		assert.False(t, i.MayRead([]byte("a")) || i.MayWrite([]byte("a")) || i.MayReadRange(nil, nil) ||
			i.MayWriteRange(nil, nil) || i.MayAdminister() || i.MaySomething())
	}
	admin := &auth.Identity{Admin: true}
	assert.False(t, admin.MayRead([]byte("a")) || admin.MaySomething(), "it has no data")
	assert.True(t, admin.MayMonitor())
	monitor := &auth.Identity{Monitor: true}
	assert.True(t, monitor.MayMonitor())
	assert.False(t, monitor.MayAdminister() || monitor.MaySomething() || nobody.MayMonitor())
}

func write(t *testing.T, fsys vfs.FS, entries ...auth.Entry) {
	t.Helper()
	text, err := auth.Encode(entries)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteAtomic(fsys, "tokens", text))
}

func TestARevokedTokenEndsItsSession(t *testing.T) {
	fsys := vfs.NewMem()
	token, id, hash := auth.NewToken()
	entry := auth.Entry{Identity: auth.Identity{Name: "app", TokenID: id, Read: []string{"a"}, Expires: time.Now().Add(time.Hour)}, Hash: hash}
	write(t, fsys, entry)
	var reports []error
	a, err := auth.Open(fsys, "tokens", func(err error) { reports = append(reports, err) })
	require.NoError(t, err)
	now := time.Now()
	s := a.SignIn(token)
	assert.True(t, s.Shows(token))
	assert.False(t, s.Shows(token+"x"))
	i, err := s.Identity(now)
	require.NoError(t, err)
	assert.Equal(t, "app", i.Name)
	_, err = s.Identity(now.Add(time.Hour))
	require.ErrorIs(t, err, auth.ErrExpired)

	entry.Write = []string{"b"}
	write(t, fsys, entry)
	a.Reload()
	i, err = s.Identity(now)
	require.NoError(t, err)
	assert.True(t, i.MayWrite([]byte("b")), "new rights count")

	require.NoError(t, vfs.WriteAtomic(fsys, "tokens", []byte("nonsense")))
	a.Reload()
	_, err = s.Identity(now)
	require.NoError(t, err, "a damaged file changes nothing")

	write(t, fsys)
	a.Reload()
	_, err = s.Identity(now)
	require.ErrorIs(t, err, auth.ErrUnknown)
	require.Len(t, reports, 3)
	require.NoError(t, reports[0])
	require.Error(t, reports[1])
	require.NoError(t, reports[2])
}

func TestOnlyTheWholeTokenSignsIn(t *testing.T) {
	fsys := vfs.NewMem()
	token, id, hash := auth.NewToken()
	other, _, _ := auth.NewToken()
	write(t, fsys, auth.Entry{Identity: auth.Identity{Name: "app", TokenID: id}, Hash: hash})
	a, err := auth.Open(fsys, "tokens", func(error) {})
	require.NoError(t, err)
	assert.Equal(t, 1, a.Identities())
	for _, wrong := range []string{"", id, token[:len(token)-1], token + "A", other, strings.ToUpper(token), "kvd1." + id + ".", "kvd2" + token[4:]} {
		_, err := a.SignIn(wrong).Identity(time.Now())
		require.ErrorIs(t, err, auth.ErrUnknown, wrong)
	}
	_, err = (*auth.Session)(nil).Identity(time.Now())
	require.ErrorIs(t, err, auth.ErrNoCredentials)
	assert.NotEqual(t, token, other)
	assert.Len(t, token, len("kvd1.")+16+1+43)
}

func TestCertificatesAreKnownByOneName(t *testing.T) {
	uri := func(names ...string) (all []*url.URL) {
		for _, name := range names {
			u, err := url.Parse(name)
			require.NoError(t, err)
			all = append(all, u)
		}
		return all
	}
	fsys := vfs.NewMem()
	var entries []auth.Entry
	for name, certificate := range map[string]string{
		"app": "kvd:app", "old": "CN=old", "new": "uri:kvd:new", "host": "dns:App.Example", "common": "cn:common", "odd": "uri:CN=odd",
	} {
		entries = append(entries, auth.Entry{Identity: auth.Identity{Name: name, Certificate: certificate}})
	}
	write(t, fsys, entries...)
	a, err := auth.Open(fsys, "tokens", func(error) {})
	require.NoError(t, err)
	later := time.Now().Add(time.Hour)
	cn := func(name string) pkix.Name { return pkix.Name{CommonName: name} }
	dns := func(names ...string) []string { return names }
	for _, c := range []struct {
		certificate x509.Certificate
		listed, any string
	}{
		{x509.Certificate{URIs: uri("kvd:app")}, "app", "uri:kvd:app"},
		{x509.Certificate{URIs: uri("kvd:app"), Subject: cn("old")}, "app", "uri:kvd:app"},
		{x509.Certificate{Subject: cn("old")}, "old", "cn:old"},
		{x509.Certificate{Subject: cn("kvd:app")}, "", "cn:kvd:app"},
		{x509.Certificate{URIs: uri("kvd:other"), Subject: cn("old")}, "", "uri:kvd:other"},
		{x509.Certificate{URIs: uri("kvd:app", "kvd:b")}, "", ""},
		{x509.Certificate{URIs: uri("kvd:app", "kvd:b"), Subject: cn("old"), DNSNames: dns("app.example")}, "", ""},
		{x509.Certificate{DNSNames: dns("kvd:app")}, "", "dns:kvd:app"},
		{x509.Certificate{URIs: uri("kvd:App")}, "", "uri:kvd:App"},
		{x509.Certificate{URIs: uri("kvd:new")}, "new", "uri:kvd:new"},
		{x509.Certificate{DNSNames: dns("aPP.example")}, "host", "dns:app.example"},
		{x509.Certificate{DNSNames: dns("app.example"), Subject: cn("old")}, "host", "dns:app.example"},
		{x509.Certificate{DNSNames: dns("other.example"), Subject: cn("old")}, "old", "dns:other.example"},
		{x509.Certificate{DNSNames: dns("app.example", "b.example")}, "", ""},
		{x509.Certificate{DNSNames: dns("app.example", "b.example"), Subject: cn("common")}, "common", "cn:common"},
		// A URI is never taken for a common name.
		{x509.Certificate{URIs: uri("CN=old")}, "", "uri:CN=old"},
		{x509.Certificate{URIs: uri("cn:common")}, "", "uri:cn:common"},
		{x509.Certificate{URIs: uri("CN=odd")}, "odd", "uri:CN=odd"},
		{x509.Certificate{Subject: cn("odd")}, "", "cn:odd"},
	} {
		c.certificate.NotAfter = later
		for authority, want := range map[*auth.Authority]string{a: c.listed, auth.ForCertificates(): c.any} {
			s := authority.SignInByCertificate(&c.certificate)
			i, err := s.Identity(time.Now())
			if want == "" {
				require.ErrorIs(t, err, auth.ErrUnknown)
				continue
			}
			require.NoError(t, err)
			assert.Equal(t, want, i.Name)
			_, err = s.Identity(later)
			require.ErrorIs(t, err, auth.ErrExpired, "an open connection does not outlive its certificate")
		}
	}
}

// golden is a file of version 1.
func golden(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "v1", "tokens.json"))
	require.NoError(t, err)
	return text
}

func TestFilesOfVersion1AreRead(t *testing.T) {
	entries, err := auth.Decode(golden(t))
	require.NoError(t, err)
	require.Len(t, entries, 2)
	app, ops := entries[0], entries[1]
	assert.Equal(t, []string{"user/", "\x00\\\xff"}, app.Read)
	assert.Equal(t, []string{"user/"}, app.Write)
	assert.False(t, app.Admin)
	assert.Equal(t, "0123456789abcdef", app.TokenID)
	assert.EqualValues(t, 0xab, app.Hash[0])
	assert.True(t, ops.Admin)
	assert.Equal(t, "kvd:ops", ops.Certificate)
	assert.Equal(t, time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), app.Expires)
	text, err := auth.Encode(entries)
	require.NoError(t, err)
	assert.Equal(t, string(golden(t)), string(text))
}

func TestWrongFilesAreRefusedWithTheReason(t *testing.T) {
	one := func(fields string) string {
		return `{"version": 1, "identities": [{"name": "x", "certificate": "kvd:x"` + fields + `}]}`
	}
	for text, says := range map[string]string{
		``:                                  "unexpected end",
		`{}`:                                "version 0",
		`{"version": 3, "new": 1}`:          "a newer one",
		`{"version": 1, "identity": []}`:    "unknown field",
		`{"version": 1, "identities": []}x`: "invalid character",
		`{"version": 1, "identities": []}{"version": 1}`:                                                             "invalid character",
		one(`, "reed": [""]`):                                                                                        "unknown field",
		one(`, "read": ["\\q"]`):                                                                                     "after a backslash",
		one(`, "read": ["\\xzz"]`):                                                                                   "two hexadecimal digits",
		one(`, "token": {"id": "0123456789abcdef", "sha256": ""}`):                                                   "either a token or a certificate",
		`{"version": 1, "identities": [{"name": "x"}]}`:                                                              "either a token or a certificate",
		`{"version": 1, "identities": [{"name": "", "certificate": "a"}]}`:                                           "name",
		`{"version": 1, "identities": [{"name": "a\nb", "certificate": "a"}]}`:                                       "printable",
		`{"version": 1, "identities": [{"name": "x", "token": {"id": "0"}}]}`:                                        "token id",
		`{"version": 1, "identities": [{"name": "x", "token": {"id": "0123456789ABCDEF"}}]}`:                         "token id",
		`{"version": 1, "identities": [{"name": "x", "token": {"id": "0123456789abcdef", "sha256": "ab"}}]}`:         "sha256",
		`{"version": 1, "identities": [{"name": "x", "certificate": "a"}, {"name": "y", "certificate": "a"}]}`:       "listed twice",
		`{"version": 1, "identities": [{"name": "x", "certificate": "CN=a"}, {"name": "y", "certificate": "cn:a"}]}`: "listed twice",
		`{"version": 1, "identities": [{"name": "x", "certificate": "dns:"}]}`:                                       "no name after dns:",
		one(`, "read": [` + strings.Repeat(`"a",`, 100) + `"a"]`):                                                    "at most 64",
	} {
		_, err := auth.Decode([]byte(text))
		require.ErrorContains(t, err, says, text)
	}
}

// Those who may write to the file could give themselves rights.
func TestAFileThatOthersMayWriteToIsRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(name, golden(t), 0o600))
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o644: true, 0o660: false, 0o602: false} {
		require.NoError(t, os.Chmod(name, mode))
		_, err := auth.Open(vfs.OS, name, func(error) {})
		assert.Equal(t, ok, err == nil, "%v: %v", mode, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(golden(f))
	f.Add(goldenQuotas(f))
	f.Add([]byte(`{"version": 1, "identities": [{"name": "x", "certificate": "kvd:x", "read": ["\\x00"]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := auth.Decode(text)
		if err != nil {
			return
		}
		again, err := auth.Encode(entries)
		require.NoError(t, err)
		require.True(t, json.Valid(again))
		decoded, err := auth.Decode(again)
		require.NoError(t, err)
		require.Len(t, decoded, len(entries))
		for i := range entries {
			require.True(t, entries[i].Created.Equal(decoded[i].Created) && entries[i].Expires.Equal(decoded[i].Expires))
			entries[i].Created, entries[i].Expires = decoded[i].Created, decoded[i].Expires
			require.Equal(t, entries[i], decoded[i])
		}
	})
}
