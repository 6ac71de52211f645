package certificate_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/livefile"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var files = certificate.Files{Certificate: "server.pem", Key: "server.key", ClientCA: "ca.pem"}

// write makes new certificates and puts those of the server into the file system.
func write(t *testing.T, fsys vfs.FS, lasts time.Duration) *certificate.DevSet {
	t.Helper()
	return writeMade(t, fsys, time.Now(), lasts)
}

// writeMade is write with certificates that were made at another time.
func writeMade(t *testing.T, fsys vfs.FS, made time.Time, lasts time.Duration) *certificate.DevSet {
	t.Helper()
	set, err := certificate.Dev([]string{"kvd.test", "127.0.0.1"}, []string{"app"}, made, lasts)
	require.NoError(t, err)
	for name, data := range map[string][]byte{"server.pem": set.Server.Certificate, "server.key": set.Server.Key, "ca.pem": set.CA} {
		require.NoError(t, vfs.WriteAtomic(fsys, name, data))
	}
	return set
}

func clientConfig(t *testing.T, set *certificate.DevSet, names ...string) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(set.CA))
	config := &tls.Config{RootCAs: pool, ServerName: "kvd.test"}
	for _, name := range names {
		pair, err := tls.X509KeyPair(set.Clients[name].Certificate, set.Clients[name].Key)
		require.NoError(t, err)
		config.Certificates = append(config.Certificates, pair)
	}
	return config
}

// shake performs a handshake and returns the error of either side.
func shake(server, client *tls.Config) (state tls.ConnectionState, err error) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	served := make(chan error, 1)
	accepted := tls.Server(a, server)
	go func() {
		err := accepted.Handshake()
		if err == nil {
			_, err = accepted.Write([]byte("x"))
		}
		_ = a.Close()
		served <- err
	}()
	conn := tls.Client(b, client)
	if err = conn.Handshake(); err == nil {
		_, err = conn.Read(make([]byte, 1)) // the server judges the client's certificate last
	}
	_ = b.Close()
	if serverErr := <-served; err == nil || serverErr != nil && conn.ConnectionState().HandshakeComplete {
		err = serverErr
	}
	return accepted.ConnectionState(), err
}

func TestBothSidesAreVerified(t *testing.T) {
	fsys := vfs.NewMem()
	set, other := write(t, fsys, time.Hour), write(t, vfs.NewMem(), time.Hour)
	s, err := certificate.Open(fsys, files, func(error) {})
	require.NoError(t, err)
	state, err := shake(s.Config(), clientConfig(t, set, "app"))
	require.NoError(t, err)
	assert.EqualValues(t, tls.VersionTLS13, state.Version)
	assert.Equal(t, "kvd:app", state.PeerCertificates[0].URIs[0].String())
	assert.WithinDuration(t, time.Now().Add(time.Hour), s.Ends(), time.Minute)

	_, err = shake(s.Config(), clientConfig(t, set))
	require.ErrorContains(t, err, "certificate", "a client without one")
	_, err = shake(s.Config(), clientConfig(t, other, "app"))
	require.Error(t, err, "the client does not know the server's authority")
	stranger := clientConfig(t, set)
	stranger.Certificates = clientConfig(t, other, "app").Certificates
	_, err = shake(s.Config(), stranger)
	require.Error(t, err, "the server does not know the client's authority")
	old := clientConfig(t, set, "app")
	old.MaxVersion = tls.VersionTLS12
	_, err = shake(s.Config(), old)
	require.ErrorContains(t, err, "protocol version")

	optional := files
	optional.ClientOptional = true
	s, err = certificate.Open(fsys, optional, func(error) {})
	require.NoError(t, err)
	_, err = shake(s.Config(), clientConfig(t, set))
	require.NoError(t, err)
	_, err = shake(s.Config(), stranger)
	require.Error(t, err, "one that is given is verified")
}

func TestNewCertificatesAreServedWithoutARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		first := write(t, fsys, time.Hour)
		reports := make(chan error, 10)
		s, err := certificate.Open(fsys, files, func(err error) { reports <- err })
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		config := s.Config()
		second := write(t, fsys, 2*time.Hour)
		time.Sleep(livefile.PollEvery)
		synctest.Wait()
		require.NoError(t, <-reports)
		_, err = shake(config, clientConfig(t, second, "app"))
		require.NoError(t, err)
		_, err = shake(config, clientConfig(t, first, "app"))
		require.Error(t, err)

		// A key that does not belong to the certificate.
		require.NoError(t, vfs.WriteAtomic(fsys, "server.key", first.Server.Key))
		time.Sleep(5 * livefile.PollEvery)
		synctest.Wait()
		require.Len(t, reports, 1, "it is reported once")
		require.ErrorContains(t, <-reports, "certificate server.pem with key server.key: ")
		_, err = shake(config, clientConfig(t, second, "app"))
		require.NoError(t, err, "the old pair is served")
		cancel()
		<-ended
	})
}

func TestBadFilesAreRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct{ file, text, says string }{
		{"server.pem", "nonsense", "certificate server.pem with key server.key: "},
		{"server.key", "", "certificate server.pem with key server.key: "},
		{"ca.pem", "nonsense", "authorities ca.pem: there is no certificate in it"},
	} {
		fsys := vfs.NewMem()
		write(t, fsys, time.Hour)
		require.NoError(t, vfs.WriteAtomic(fsys, c.file, []byte(c.text)))
		_, err := certificate.Open(fsys, files, func(error) {})
		require.ErrorContains(t, err, c.says)
	}
	fsys := vfs.NewMem()
	write(t, fsys, -time.Minute)
	_, err := certificate.Open(fsys, files, func(error) {})
	require.ErrorContains(t, err, "it expired at ")
}

// A certificate of tomorrow is refused with its time. At a reload the old one is served until the
// new one is valid.
func TestACertificateThatIsNotValidYetIsRefusedUntilItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		made := time.Now().Add(time.Hour)
		writeMade(t, fsys, made, time.Hour)
		says := "certificate server.pem: it is not valid before " + made.Add(-5*time.Minute).UTC().Format(time.RFC3339)
		_, err := certificate.Open(fsys, files, func(error) {})
		require.ErrorContains(t, err, says)

		first := write(t, fsys, 3*time.Hour)
		reports := make(chan error, 10)
		s, err := certificate.Open(fsys, files, func(err error) { reports <- err })
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		second := writeMade(t, fsys, made, time.Hour)
		time.Sleep(10 * livefile.PollEvery)
		synctest.Wait()
		require.Len(t, reports, 1, "it is reported once")
		require.ErrorContains(t, <-reports, says)
		_, err = shake(s.Config(), clientConfig(t, first, "app"))
		require.NoError(t, err)

		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, reports, 1)
		require.NoError(t, <-reports)
		_, err = shake(s.Config(), clientConfig(t, second, "app"))
		require.NoError(t, err)
		cancel()
		<-ended
	})
}

// A session is not resumed: its client would not be verified again.
func TestSessionsAreNotResumed(t *testing.T) {
	fsys := vfs.NewMem()
	set := write(t, fsys, time.Hour)
	s, err := certificate.Open(fsys, files, func(error) {})
	require.NoError(t, err)
	server, client := s.Config(), clientConfig(t, set, "app")
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 3 {
		state, err := shake(server, client)
		require.NoError(t, err)
		assert.False(t, state.DidResume)
	}
}
