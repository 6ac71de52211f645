package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/torture/kvdbinary"
)

// devCerts makes certificates and returns the directory.
func devCerts(t *testing.T, flags ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	r := command(t, "", nil, append([]string{"cert", "dev", "--dir", dir}, flags...)...)
	require.Zero(t, r.code, r.err)
	return dir
}

// ofCertificates has a server listen at the address that certificates of kvd cert dev are for.
var ofCertificates = []string{"--listen", "127.0.0.1:0"}

func serverTLS(dir string) []string {
	return append(slices.Clone(ofCertificates), "--tls-cert", filepath.Join(dir, "server.pem"), "--tls-key", filepath.Join(dir, "server.key"))
}

// clientTLS are the flags of a client; a name of "" is one without a certificate.
func clientTLS(dir, name string) []string {
	flags := []string{"--tls-ca", filepath.Join(dir, "ca.pem")}
	if name != "" {
		flags = append(flags, "--tls-cert", filepath.Join(dir, name+".pem"), "--tls-key", filepath.Join(dir, name+".key"))
	}
	return flags
}

func TestCertDevMakesFilesThatOnlyTheUserReads(t *testing.T) {
	dir := devCerts(t)
	names := []string{"ca.pem", "server.pem", "server.key", "app.pem", "app.key", "admin.pem", "admin.key"}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, len(names))
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), name)
	}
	text, err := os.ReadFile(filepath.Join(dir, "server.pem"))
	require.NoError(t, err)
	block, _ := pem.Decode(text)
	server, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	assert.InDelta(t, 30*24, server.NotAfter.Sub(server.NotBefore).Hours(), 1)
	assert.Equal(t, x509.ECDSA, server.PublicKeyAlgorithm)

	r := command(t, "", nil, "cert", "dev", "--dir", dir)
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "holds certificates already")
	assert.Zero(t, command(t, "", nil, "cert", "dev", "--dir", dir, "--force").code)
	for _, bad := range []string{"../x", "ca", "a b"} {
		assert.Equal(t, 64, command(t, "", nil, "cert", "dev", "--dir", dir, "--force", "--client", bad).code, bad)
	}
}

// The commands that cert dev prints work.
func TestTheCommandsOfCertDevWork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	r := command(t, "", nil, "cert", "dev", "--dir", dir)
	require.Zero(t, r.code, r.err)
	var serving, putting []string
	for line := range strings.Lines(r.out) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "kvd serve"):
			serving = words[2:]
		case strings.HasPrefix(line, "kvd put"):
			putting = words[1:]
		}
	}
	p := serve(t, t.TempDir(), append(serving, ofCertificates...)...)
	for i, word := range putting {
		if word == "--addr" {
			putting[i+1] = strings.Replace(p.addr, "127.0.0.1", "localhost", 1)
		}
	}
	r = command(t, "", nil, putting...)
	require.Zero(t, r.code, r.err)
}

func TestAServerWithoutTLSIsToldApart(t *testing.T) {
	t.Parallel()
	dir, p := devCerts(t), serve(t, t.TempDir(), "--dev")
	r := saying(t, "the server answers, and without TLS", 2*time.Second, func(timeout string) result {
		return p.kvd(append([]string{"get", "a", "--timeout", timeout}, clientTLS(dir, "app")...)...)
	})
	assert.Equal(t, exitUnavailable, r.code, r.err)
}

func TestOnlyClientsWithACertificateAreServed(t *testing.T) {
	t.Parallel()
	dir, other := devCerts(t), devCerts(t)
	p := serve(t, t.TempDir(), append(serverTLS(dir), "--client-ca", filepath.Join(dir, "ca.pem"))...)
	with := func(flags []string, args ...string) result { return p.kvd(append(args, flags...)...) }

	for _, args := range [][]string{{"put", "a", "1"}, {"get", "a"}, {"scan"}, {"health"}, {"slowlog"}, {"digest"}} {
		r := with(clientTLS(dir, "app"), args...)
		assert.Zero(t, r.code, "%v: %s", args, r.err)
	}
	// Frames and gRPC came by the same port.
	for _, c := range []struct {
		name  string
		flags []string
		says  string
	}{
		{"plain text", nil, "if it uses TLS, give"},
		{"no certificate", clientTLS(dir, ""), "wants a client certificate"},
		{"certificate of another authority", append(clientTLS(dir, ""), clientTLS(other, "app")[2:]...), "certificate"},
		{"server of another authority", clientTLS(other, "app"), "of another authority: give"},
	} {
		for _, args := range [][]string{{"get", "a"}, {"scan"}} {
			r := saying(t, c.says, 2*time.Second, func(timeout string) result {
				return with(append(slices.Clip(c.flags), "--timeout", timeout), args...)
			})
			assert.Equal(t, exitUnavailable, r.code, "%s: %v: %s", c.name, args, r.err)
			assert.NotContains(t, r.err, "is the server running", c.name)
			assert.Empty(t, r.out)
		}
	}
	r := command(t, "", nil, "get", "a", "--tls-cert", filepath.Join(dir, "app.pem"))
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "belong together")
	assert.Zero(t, p.end(syscall.SIGTERM))
}

// A server that uses TLS resets the connection of a client in plain text if that wrote more than the
// server has read; the error then names both reasons for which the server may have done so.
func TestAResetConnectionMayBeOneOfTLS(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var resets sync.WaitGroup
	resets.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed below
			}
			if _, err := c.Read(make([]byte, 1)); err == nil { // otherwise the client has given up
				assert.NoError(t, c.(*net.TCPConn).SetLinger(0))
			}
			assert.NoError(t, c.Close())
		}
	})
	r := saying(t, "if it uses TLS, give its authority's certificate", time.Second, func(timeout string) result {
		return command(t, "", nil, "get", "a", "--addr", l.Addr().String(), "--timeout", timeout)
	})
	assert.Equal(t, exitUnavailable, r.code, r.err)
	assert.Contains(t, r.err, "wants a client certificate")
	assert.NotContains(t, r.err, "is the server running")
	require.NoError(t, l.Close())
	resets.Wait()
}

// New certificates are served after SIGHUP, and a bad pair leaves the old one in use.
func TestCertificatesAreReplacedWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := devCerts(t)
	p := serve(t, t.TempDir(), append(serverTLS(dir), "--client-ca", filepath.Join(dir, "ca.pem"))...)
	pool := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(text))
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "app.pem"), filepath.Join(dir, "app.key"))
	require.NoError(t, err)
	old, err := tls.Dial("tcp", p.addr, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "localhost", NextProtos: []string{"h2"}})
	require.NoError(t, err)
	defer func() { _ = old.Close() }()
	put := func(value string) result {
		return p.kvd(append([]string{"put", "a", value}, clientTLS(dir, "app")...)...)
	}
	require.Zero(t, put("1").code)

	require.Zero(t, command(t, "", nil, "cert", "dev", "--dir", dir, "--force").code)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	testwait.Until(t, func() bool { return strings.Contains(p.log.String(), "new certificates are served") })
	r := put("2")
	require.Zero(t, r.code, r.err)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "server.pem"), []byte("nonsense"), 0o600))
	testwait.Until(t, func() bool { return strings.Contains(p.log.String(), "new certificates cannot be used") })
	assert.Contains(t, p.log.String(), "server.pem", "the reason")
	r = put("3")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, page(t, p, "/metrics"), "\nkvd_reload_failures_total 1\n")
	assert.Contains(t, page(t, p, "/metrics"), "\nkvd_reload_failing 1\n")
	require.Zero(t, command(t, "", nil, "cert", "dev", "--dir", dir, "--force").code)
	testwait.Until(t, func() bool { return strings.Contains(page(t, p, "/metrics"), "\nkvd_reload_failing 0\n") })
	assert.Contains(t, page(t, p, "/metrics"), "\nkvd_tls_certificate_expiry_timestamp_seconds ")
	assert.Zero(t, p.end(syscall.SIGTERM))
}

func TestABadTLSSettingIs64(t *testing.T) {
	dir := devCerts(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	data := filepath.Join(t.TempDir(), "data")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--tls-cert", in("server.pem")}, "belong together"},
		{[]string{"--client-ca", in("ca.pem")}, "--client-ca needs --tls-cert"},
		{[]string{"--tls-cert", in("server.pem"), "--tls-key", in("none.key")}, "kvd cert dev makes certificates"},
		{[]string{"--tls-cert", in("server.pem"), "--tls-key", in("app.key")}, "private key does not match"},
		{[]string{"--listen", "0.0.0.0:0", "--tls-cert", in("server.pem"), "--tls-key", in("server.key")}, "--client-ca"},
	} {
		r := command(t, "", nil, append(kvdbinary.ServeArgs(data), c.args...)...)
		assert.Equal(t, 64, r.code, r.err)
		assert.Contains(t, r.err, c.says)
		assert.NoDirExists(t, data)
	}
}

// Another implementation of TLS agrees.
func TestOpenSSLConnects(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("SKIPPED: openssl is not installed")
	}
	dir := devCerts(t)
	p := serve(t, t.TempDir(), append(serverTLS(dir), "--client-ca", filepath.Join(dir, "ca.pem"))...)
	connect := func(args ...string) (string, error) {
		cmd := exec.CommandContext(testwait.Context(t), openssl, append([]string{"s_client", "-connect", p.addr, "-brief",
			"-servername", "localhost", "-verify_return_error", "-CAfile", filepath.Join(dir, "ca.pem")}, args...)...)
		cmd.Stdin = strings.NewReader("")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	own := []string{"-cert", filepath.Join(dir, "app.pem"), "-key", filepath.Join(dir, "app.key")}
	for _, name := range []string{"h2", "kvd-frame/1"} {
		out, err := connect(append(own, "-alpn", name)...)
		require.NoError(t, err, out)
		assert.Contains(t, out, "TLSv1.3")
		assert.Contains(t, out, "Verification: OK")
	}
	out, err := connect(append(own, "-alpn", "h2", "-tls1_2")...)
	require.Error(t, err, out)
	out, err = connect(append(own, "-alpn", "nonsense")...)
	require.Error(t, err, out)
}

// page returns what the admin pages say.
func page(t *testing.T, p *process, path string) string {
	t.Helper()
	_, text := pageAs(t, p, path, "")
	return text
}

// pageAs asks for a page with a token, unless that is empty.
func pageAs(t *testing.T, p *process, path, token string) (status int, text string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	host := p.admin
	if socket, ok := strings.CutPrefix(host, "unix:"); ok {
		host = "kvd"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+path, nil)
	require.NoError(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}
