package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// newToken adds an identity and returns its token.
func newToken(t *testing.T, file, name string, flags ...string) string {
	t.Helper()
	r := command(t, "", nil, append([]string{"token", "new", "--file", file, "--name", name}, flags...)...)
	require.Zero(t, r.code, r.err)
	token := strings.TrimSpace(r.out)
	require.Greater(t, len(token), 60)
	secrets.add(token)
	return token
}

// Commands that change the file at once, also by a link to it, wait for each other. One that
// names a file which is missing leaves none.
func TestTokensAreAddedByOneCommandAtATime(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "tokens.json"), filepath.Join(dir, "link")
	newToken(t, file, "first", "--read", "")
	require.NoError(t, os.Symlink(file, link))
	const count = 6
	results := make(chan result, count)
	for i := range count {
		go func() {
			results <- command(t, "", nil, "token", "allow", "--file", []string{file, link}[i%2], "--certificate", fmt.Sprint("cn:", i), "--admin")
		}()
	}
	for range count {
		r := <-results
		assert.Zero(t, r.code, r.err)
	}
	r := command(t, "", nil, "token", "list", "--file", file)
	assert.Equal(t, 2+count, strings.Count(r.out, "\n"), r.out)

	absent := filepath.Join(dir, "absent")
	assert.Equal(t, 64, command(t, "", nil, "token", "revoke", "--file", absent, "app").code)
	assert.NoFileExists(t, absent+".lock")
}

func TestTokensAreListedWithoutTheirSecretAndRevoked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.json")
	app := newToken(t, file, "app", "--read", "user/", "--write", `user/\x00`, "--expires", "720h")
	newToken(t, file, "app", "--read", "")
	r := command(t, "", nil, "token", "allow", "--file", file, "--certificate", "kvd:ops", "--admin")
	require.Zero(t, r.code, r.err)
	r = command(t, "", nil, "token", "allow", "--file", file, "--certificate", "uri:kvd:ops", "--admin")
	assert.Equal(t, 64, r.code, "twice")
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	r = command(t, "", nil, "token", "list", "--file", file)
	require.Zero(t, r.code, r.err)
	assert.Len(t, strings.Split(strings.TrimSpace(r.out), "\n"), 4)
	assert.Regexp(t, `(?m)^app +token [0-9a-f]{16} +"user/" +"user/\\x00" +false +false +20\S+ +none$`, r.out)
	assert.Regexp(t, `(?m)^kvd:ops +certificate kvd:ops +- +- +true +true +never +none$`, r.out)
	r = command(t, "", nil, "token", "list", "--file", file, "-o", "json")
	for line := range strings.Lines(r.out) {
		assert.True(t, json.Valid([]byte(line)), line)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	secret := app[strings.LastIndex(app, ".")+1:]
	assert.NotContains(t, string(text)+r.out, secret)

	assert.Zero(t, command(t, "", nil, "token", "revoke", "--file", file, "app").code)
	assert.Equal(t, 64, command(t, "", nil, "token", "revoke", "--file", file, "app").code, "there is none any more")
	r = command(t, "", nil, "token", "list", "--file", file)
	assert.Len(t, strings.Split(strings.TrimSpace(r.out), "\n"), 2)
	for _, bad := range [][]string{
		{"new", "--file", file, "--name", "x"}, {"new", "--file", file, "--read", ""}, {"new", "--name", "x", "--admin"},
		{"new", "--file", file, "--name", "x", "--read", `\q`}, {"list", "--file", file + "x"}, {"revoke", "--file", file},
		{"new", "--file", file, "--name", "x", "--admin", "--expires", "-1s"},
		{"new", "--file", file, "--name", "x", "--admin", "--max-requests", "1000"},
		{"new", "--file", file, "--name", "x", "--admin", "--max-bytes", "10MB/s"},
		{"new", "--file", file, "--name", "x", "--admin", "--burst", "1s"},
		{"limit", "--file", file, "--max-requests", "1/s"}, {"limit", "--file", file, "nobody", "--max-requests", "1/s"},
	} {
		assert.Equal(t, 64, command(t, "", nil, append([]string{"token"}, bad...)...).code, "%v", bad)
	}
}

// With --out the token is in a new file that others cannot read, and not in the output. A file that
// is there stays, and nothing is added.
func TestANewTokenIsWrittenToANewFile(t *testing.T) {
	dir := t.TempDir()
	tokens, out := filepath.Join(dir, "tokens.json"), filepath.Join(dir, "app.token")
	entries := func() int { return strings.Count(command(t, "", nil, "token", "list", "--file", tokens).out, "\n") - 1 }
	add := func(file, out string) result {
		return command(t, "", nil, "token", "new", "--file", file, "--name", "app", "--read", "", "--out", out)
	}
	r := add(tokens, out)
	require.Zero(t, r.code, r.err)
	assert.Empty(t, r.out)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	token := strings.TrimSpace(string(text))
	secrets.add(token)
	assert.NotContains(t, r.err, token)
	info, err := os.Stat(out)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	require.Equal(t, 1, entries())
	p := serve(t, t.TempDir(), "--tokens", tokens)
	assert.Equal(t, exitNotFound, command(t, "", nil, "get", "k", "--addr", p.addr, "--token-file", out).code)

	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), link))
	for _, taken := range []string{out, link, dir, tokens} {
		r := add(tokens, taken)
		assert.Equal(t, 64, r.code, "%s: %s", taken, r.err)
		assert.Contains(t, r.err, "exists already")
	}
	again, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, text, again)
	assert.NoFileExists(t, filepath.Join(dir, "elsewhere"))

	absent := filepath.Join(dir, "new.token")
	assert.Equal(t, 64, add(tokens, "").code)
	assert.Equal(t, 64, add("", absent).code)
	assert.Equal(t, 64, add(out, absent).code, "it is no token file")
	assert.Equal(t, 64, add(tokens, filepath.Join(dir, "no", "directory")).code)
	assert.NoFileExists(t, absent)
	require.Equal(t, 1, entries())
}

// A service that may read the files by its group may read what replaces them, whoever runs the
// command. As root the test also changes the user.
func TestReplacedFilesKeepTheirModeUserAndGroup(t *testing.T) {
	dir := t.TempDir()
	tokens, certs, state := filepath.Join(dir, "tokens.json"), devCerts(t), filepath.Join(dir, "state")
	newToken(t, tokens, "app", "--read", "")
	require.NoError(t, os.Remove(tokens+".lock"))
	p := serve(t, t.TempDir())
	lines := filepath.Join(dir, "lines")
	require.NoError(t, os.WriteFile(lines, []byte(`{"key":"a","value":"b"}`+"\n"), 0o600))
	require.NoError(t, os.WriteFile(state, fmt.Appendf(nil, `{"source":%q,"lines":0}`, lines), 0o600))
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 12345, 12346
	}
	files := []string{tokens, state, filepath.Join(certs, "server.key")}
	for _, file := range files {
		require.NoError(t, os.Chmod(file, 0o640))
		require.NoError(t, os.Chown(file, uid, gid))
	}
	for _, args := range [][]string{
		{"token", "new", "--file", tokens, "--name", "b", "--read", ""},
		{"token", "allow", "--file", tokens, "--certificate", "cn:c", "--read", ""},
		{"token", "limit", "--file", tokens, "b", "--max-requests", "9/s"},
		{"token", "revoke", "--file", tokens, "b"},
		{"cert", "dev", "--dir", certs, "--force"},
		{"import", lines, "--resume", state, "--addr", p.addr},
	} {
		r := command(t, "", nil, args...)
		require.Zero(t, r.code, r.err)
		for _, file := range files {
			info, err := os.Stat(file)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o640), info.Mode(), "%v: %s", args, file)
			owner := info.Sys().(*syscall.Stat_t)
			assert.EqualValues(t, uid, owner.Uid, "%v: %s", args, file)
			assert.EqualValues(t, gid, owner.Gid, "%v: %s", args, file)
		}
	}
	text, err := os.ReadFile(state)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"lines":1`)
	info, err := os.Stat(tokens + ".lock")
	require.NoError(t, err)
	assert.EqualValues(t, uid, info.Sys().(*syscall.Stat_t).Uid, "or that user could not change the file")
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

// A quota belongs to a name, and a running server applies a new one.
func TestAQuotaIsSetAndChanged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	token := newToken(t, file, "app", "--read", "", "--write", "", "--max-requests", "2/h", "--burst", "1h", "--max-bytes", "10MiB/s", "--max-connections", "20")
	newToken(t, file, "app", "--read", "")
	r := command(t, "", nil, "token", "new", "--file", file, "--name", "app", "--read", "", "--max-requests", "1/s")
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, `both are called "app", with different quotas (requests 2/h`)
	r = command(t, "", nil, "token", "list", "--file", file)
	assert.Equal(t, 2, strings.Count(r.out, "requests 2/h, bytes 10MiB/s, connections 20, burst 1h0m0s\n"), r.out)
	r = command(t, "", nil, "token", "list", "--file", file, "-o", "json")
	assert.Equal(t, 2, strings.Count(r.out, `"max_requests":"2/h","max_bytes":"10MiB/s","burst":"1h0m0s","max_connections":20}`), r.out)

	p := serve(t, t.TempDir(), "--tokens", file, "--admin", "unix:"+filepath.Join(t.TempDir(), "s"))
	get := func() result { // with less patience than the half hour after which the quota allows one more
		return command(t, "", []string{"KVD_TOKEN=" + token}, "get", "--addr", p.addr, "--timeout", "20m", "k")
	}
	assert.Equal(t, exitNotFound, get().code)
	assert.Equal(t, exitNotFound, get().code)
	r = get()
	assert.Equal(t, exitUnavailable, r.code, r.err)
	assert.Contains(t, r.err, `"app" is over its quota: requests 2/h (kvd token limit --max-requests); nothing was done, try again in`)
	r = command(t, "", nil, "token", "limit", "--file", file, "app", "--max-requests", "1000/s")
	require.Zero(t, r.code, r.err)
	p.logs("the new token file counts")
	assert.Equal(t, exitNotFound, get().code)
	metrics := page(t, p, "/metrics")
	assert.Contains(t, metrics, `kvd_quota_refused_total{identity="app",quota="requests"} `)
	assert.Regexp(t, `kvd_quota_requests_total\{identity="app"\} [3-9]`, metrics)
	r = command(t, "", nil, "token", "limit", "--file", file, "app")
	require.Zero(t, r.code, r.err)
	assert.NotContains(t, command(t, "", nil, "token", "list", "--file", file).out, "1000/s")
}

// A server with TLS, tokens and certificates, and clients of each kind.
func TestClientsHaveTheRightsOfTheirTokens(t *testing.T) {
	t.Parallel()
	certs, file := devCerts(t), filepath.Join(t.TempDir(), "tokens.json")
	good := newToken(t, file, "app", "--read", "user/", "--write", "user/")
	reader := newToken(t, file, "reader", "--read", "user/")
	other := newToken(t, file, "other", "--read", "other/", "--write", "other/")
	expired := newToken(t, file, "expired", "--read", "", "--write", "", "--expires", "1s")
	revoked := newToken(t, file, "revoked", "--read", "", "--write", "")
	admin := newToken(t, file, "admin", "--admin")
	require.Zero(t, command(t, "", nil, "token", "allow", "--file", file, "--certificate", "kvd:app", "--read", "user/").code)
	unknown := newToken(t, filepath.Join(t.TempDir(), "other.json"), "app", "--read", "", "--write", "")
	made, trail := time.Now(), filepath.Join(t.TempDir(), "audit.jsonl")
	p := serve(t, t.TempDir(), append(serverTLS(certs), "--client-ca", filepath.Join(certs, "ca.pem"), "--tokens", file, "--log-level", "debug", "--audit-log", trail)...)
	ask := func(token string, args ...string) result {
		t.Helper()
		name := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(name, []byte(token+"\n"), 0o600))
		return p.kvd(append(append(args, "--token-file", name), clientTLS(certs, "")...)...)
	}
	testwait.Until(t, func() bool { return time.Since(made) > time.Second })
	for _, c := range []struct {
		who, token string
		args       []string
		code       int
		says       string
	}{
		{"app", good, []string{"put", "user/1", "Ada"}, 0, ""},
		{"app", good, []string{"get", "user/1"}, 0, ""},
		{"app", good, []string{"scan", "--prefix", "user/"}, 0, ""},
		{"app", good, []string{"del", "--prefix", "user/x"}, 0, ""},
		{"app", good, []string{"scan"}, exitDenied, `"app" may not read all of this range`},
		{"app", good, []string{"del", "--all"}, exitDenied, `"app" may not`},
		{"app", good, []string{"get", "other/1"}, exitDenied, `"app" may not read this key`},
		{"app", good, []string{"slowlog"}, exitDenied, "may not call this method"},
		{"reader", reader, []string{"get", "user/1"}, 0, ""},
		{"reader", reader, []string{"get", "user/none"}, exitNotFound, ""},
		{"reader", reader, []string{"put", "user/1", "Eve"}, exitDenied, `"reader" may not write this key`},
		{"other", other, []string{"get", "user/1"}, exitDenied, "permission denied"},
		{"expired", expired, []string{"get", "user/1"}, exitDenied, "has expired"},
		{"unknown", unknown, []string{"get", "user/1"}, exitDenied, "does not know this token"},
		{"unknown", unknown, []string{"put", "user/1", "Eve"}, exitDenied, "give a token with --token-file"},
		{"unknown", unknown, []string{"scan"}, exitDenied, "does not know this token"},
		{"admin", admin, []string{"slowlog"}, 0, ""},
		{"admin", admin, []string{"get", "user/1"}, exitDenied, "may not call this method"},
		{"revoked", revoked, []string{"get", "user/1"}, 0, ""},
	} {
		r := ask(c.token, c.args...)
		assert.Equal(t, c.code, r.code, "%s: %v: %s", c.who, c.args, r.err)
		assert.Contains(t, r.err, c.says)
		assert.NotContains(t, r.err, "outcome unknown")
	}
	r := p.kvd(append([]string{"get", "user/1"}, clientTLS(certs, "app")...)...)
	assert.Zero(t, r.code, "by the certificate: %s", r.err)
	r = p.kvd(append([]string{"put", "user/1", "Eve"}, clientTLS(certs, "app")...)...)
	assert.Equal(t, exitDenied, r.code, r.err)
	r = p.kvd(append([]string{"get", "user/1"}, clientTLS(certs, "admin")...)...)
	assert.Equal(t, exitDenied, r.code, "a certificate that is not listed: %s", r.err)
	r = p.kvd(append([]string{"get", "user/1"}, clientTLS(certs, "")...)...)
	assert.Equal(t, exitDenied, r.code, r.err)
	assert.Contains(t, r.err, "sign in with a token or a client certificate")

	// The Go client: each way to send operations, on connections that stay open.
	pool := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(certs, "ca.pem"))
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(text))
	secure := kvd.WithTLS(&tls.Config{RootCAs: pool, ServerName: "localhost"})
	var clients []*kvd.Client
	for _, opts := range [][]kvd.Option{nil, {kvd.WithoutRawFrames()}, {kvd.WithBatching(kvd.Batching{Disabled: true})}} {
		client, err := kvd.Open("kvds://"+p.addr, append(opts, secure, kvd.WithToken(revoked), kvd.WithTimeout(testwait.Left()))...)
		require.NoError(t, err)
		defer func() { assert.NoError(t, client.Close()) }()
		value, err := client.Get(t.Context(), []byte("user/1"))
		require.NoError(t, err)
		assert.Equal(t, "Ada", string(value))
		clients = append(clients, client)
	}
	require.Zero(t, command(t, "", nil, "token", "revoke", "--file", file, "revoked").code)
	for i, client := range clients {
		testwait.Until(t, func() bool {
			_, err := client.Get(t.Context(), []byte("user/1"))
			return errors.Is(err, kvd.ErrUnauthenticated)
		})
		// The server ends the connection, so a write that is sent on it meanwhile may be in doubt.
		require.ErrorIs(t, client.Put(t.Context(), []byte("user/1"), []byte("Eve")), kvd.ErrUnauthenticated, i)
	}
	assert.Equal(t, "Ada", ask(good, "get", "user/1").out)
	_, metrics := pageAs(t, p, "/metrics", admin)
	assert.Regexp(t, `kvd_refused_total\{why="denied"\} [1-9]`, metrics)
	assert.Regexp(t, `kvd_refused_total\{why="unauthenticated"\} [1-9]`, metrics)

	assert.Zero(t, p.end(syscall.SIGTERM))
	audited, err := os.ReadFile(trail)
	require.NoError(t, err)
	for _, want := range []string{
		`"event":"sign_in","identity":"app","peer":"127.0.0.1:`, `"event":"sign_in","identity":"kvd:app"`,
		`"event":"admin","identity":"admin","peer":"127.0.0.1:`, `"method":"/kvd.v1.AdminService/ListSlowRequests"`,
	} {
		assert.Contains(t, string(audited), want)
	}
	refused, err := os.ReadFile(trail + ".refused")
	require.NoError(t, err)
	for _, want := range []string{`"event":"sign_in_failed","peer":"127.0.0.1:`, `has expired`} {
		assert.Contains(t, string(refused), want)
	}
	for _, want := range []string{
		`"identity":"reader","peer":"127\.0\.0\.1:\d+","method":"Pipeline\.Put","reason":"write this key"`,
		`"identity":"app","peer":"127\.0\.0\.1:\d+","method":"/kvd\.v1\.KVService/Scan","reason":"read all of this range"`,
		`"identity":"app","peer":"127\.0\.0\.1:\d+","method":"/kvd\.v1\.AdminService/ListSlowRequests","reason":"call this method"`,
	} {
		assert.Regexp(t, want, string(refused))
	}
	audited = append(audited, refused...)
	for line := range strings.Lines(string(audited)) {
		assert.True(t, json.Valid([]byte(line)), line)
	}
	for _, no := range []string{"user/1", "other/1", "Ada", "Eve"} {
		assert.NotContains(t, string(audited), no, "no key and no value")
	}
	said := p.log.String() + metrics + string(audited)
	require.NotEmpty(t, said)
	for _, token := range []string{good, reader, other, expired, revoked, admin, unknown} {
		assert.NotContains(t, said, token)
		assert.NotContains(t, said, token[strings.LastIndex(token, ".")+1:], "the secret")
	}
}

// A backup that is under way ends when the token of its client is revoked.
func TestARevokedTokenEndsABackup(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	writer := newToken(t, file, "writer", "--write", "")
	admin := newToken(t, file, "admin", "--admin")
	monitor := newToken(t, file, "prometheus", "--monitor")
	p := serve(t, t.TempDir(), "--tokens", file)
	open := func(n int) bool {
		_, text := pageAs(t, p, "/metrics", monitor)
		return strings.Contains(text, fmt.Sprintf("kvd_checkpoints_open %d\n", n))
	}
	client, value := p.client(kvd.WithToken(writer)), make([]byte, 1<<20)
	for i := range 24 {
		require.NoError(t, client.Put(t.Context(), fmt.Appendf(nil, "k%02d", i), value))
	}
	ended := make(chan result, 1)
	go func() { // for more than a minute and a half, if nothing ends it
		ended <- command(t, "", []string{"KVD_TOKEN=" + admin}, "backup", "--addr", p.addr, "--rate", "256KiB", filepath.Join(t.TempDir(), "backups"))
	}()
	testwait.Until(t, func() bool { return open(1) })
	require.Zero(t, command(t, "", nil, "token", "revoke", "--file", file, "admin").code)
	r := <-ended
	assert.Equal(t, exitDenied, r.code, r.err)
	assert.Contains(t, r.err, "does not know this token")
	testwait.Until(t, func() bool { return open(0) }) // the server ends the call on its own
}

// With tokens, the admin pages at an address need one too; a socket is protected by its mode.
func TestTheAdminPagesNeedAToken(t *testing.T) {
	t.Parallel()
	file, trail := filepath.Join(t.TempDir(), "tokens.json"), filepath.Join(t.TempDir(), "audit.jsonl")
	app := newToken(t, file, "app", "--read", "")
	monitor := newToken(t, file, "prometheus", "--monitor")
	admin := newToken(t, file, "ops", "--admin")
	p := serve(t, t.TempDir(), "--tokens", file, "--audit-log", trail)
	for _, c := range []struct {
		token  string
		path   string
		status int
		says   string
	}{
		{"", "/livez", 200, "ok"}, {"", "/readyz", 200, "ready"}, {"", "/", 200, "/metrics"},
		{"", "/metrics", 401, "Authorization: Bearer"}, {"", "/status.txt", 401, ""}, {"", "/debug/pprof/", 401, ""},
		{app, "/metrics", 403, `"app" may not read these pages (kvd token new --monitor)`}, {app + "x", "/metrics", 401, "does not know this token"},
		{monitor, "/metrics", 200, "kvd_build_info"}, {monitor, "/status.txt", 200, "READY"},
		{monitor, "/debug/pprof/", 403, "is no administrator"}, {monitor, "/debug/pprof/cmdline", 403, ""},
		{admin, "/metrics", 200, "kvd_admin_refused_total 7\n"}, {admin, "/debug/pprof/", 200, "goroutine"},
	} {
		status, text := pageAs(t, p, c.path, c.token)
		assert.Equal(t, c.status, status, "%s: %s", c.path, text)
		assert.Contains(t, text, c.says, c.path)
	}
	require.Zero(t, command(t, "", nil, "token", "revoke", "--file", file, "prometheus").code)
	p.logs("the new token file counts")
	status, _ := pageAs(t, p, "/metrics", monitor)
	assert.Equal(t, 401, status)
	assert.Zero(t, p.end(syscall.SIGTERM))
	audited, err := os.ReadFile(trail)
	require.NoError(t, err)
	assert.Contains(t, string(audited), `"event":"admin","identity":"ops","peer":"127.0.0.1:`)
	assert.Contains(t, string(audited), `"method":"/debug/pprof/"`)

	socket := filepath.Join(t.TempDir(), "admin")
	p = serve(t, t.TempDir(), "--tokens", file, "--admin", "unix:"+socket)
	assert.Equal(t, "unix:"+socket, p.admin)
	info, err := os.Lstat(socket)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o600, info.Mode())
	assert.Contains(t, page(t, p, "/metrics"), "kvd_build_info")
	p.end(syscall.SIGKILL)
	p = serve(t, t.TempDir(), "--tokens", file, "--admin", "unix:"+socket)
	assert.Contains(t, page(t, p, "/livez"), "ok")
	assert.Zero(t, p.end(syscall.SIGTERM))
	_, err = os.Lstat(socket)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// At an address that other machines may reach, the admin pages have the server's certificate.
func TestTheAdminPagesAreSecuredBeyondLoopback(t *testing.T) {
	certs, file := devCerts(t), filepath.Join(t.TempDir(), "tokens.json")
	admin := newToken(t, file, "ops", "--admin")
	pool := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(certs, "ca.pem"))
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(text))
	pair, err := tls.LoadX509KeyPair(filepath.Join(certs, "admin.pem"), filepath.Join(certs, "admin.key"))
	require.NoError(t, err)
	ask := func(p *process, token string, pairs ...tls.Certificate) (int, error) {
		_, port, err := net.SplitHostPort(p.admin)
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost:"+port+"/debug/pprof/cmdline", nil)
		require.NoError(t, err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: pairs}}}
		response, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	expect := func(want int, status int, err error) {
		t.Helper()
		require.NoError(t, err)
		assert.Equal(t, want, status)
	}
	anywhere := append(serverTLS(certs), "--admin", "0.0.0.0:0")
	require.NoError(t, os.Chmod(filepath.Join(certs, "server.key"), 0o644))
	p := serve(t, t.TempDir(), append(anywhere, "--tokens", file)...)
	status, err := ask(p, "")
	expect(401, status, err)
	status, err = ask(p, admin)
	expect(200, status, err)

	assert.Contains(t, p.log.String(), "every user of this machine may read the server's private key")

	require.NoError(t, os.Chmod(filepath.Join(certs, "server.key"), 0o640))
	p = serve(t, t.TempDir(), append(anywhere, "--client-ca", filepath.Join(certs, "ca.pem"))...)
	status, err = ask(p, "", pair)
	expect(200, status, err)
	_, err = ask(p, "")
	require.Error(t, err, "without a certificate")
	assert.NotContains(t, p.log.String(), "handshake", "any number of clients could fill the log with that")
	assert.NotContains(t, p.log.String(), "private key")

	r := command(t, "", nil, append([]string{"serve", "--dev"}, anywhere...)...)
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "unix:/path/to/socket")
}
