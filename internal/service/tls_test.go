package service

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/certificate"
)

func testPair(t *testing.T) tls.Certificate {
	t.Helper()
	set, err := certificate.Dev([]string{"kvd.test"}, nil, time.Now(), time.Hour)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(set.Server.Certificate, set.Server.Key)
	require.NoError(t, err)
	return pair
}

// The end of a connection does not wait for a client that does not read.
func TestClosingTLSDoesNotWaitForTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(limitsOnly{}, Options{TLS: &tls.Config{Certificates: []tls.Certificate{testPair(t)}}})
		here, there := net.Pipe()
		defer func() { _ = there.Close() }()
		client := make(chan error, 1)
		go func() {
			conn := tls.Client(there, &tls.Config{InsecureSkipVerify: true})
			client <- conn.Handshake()
		}()
		secured := tls.Server(here, s.demux.tls)
		require.NoError(t, secured.Handshake())
		require.NoError(t, <-client)
		c := newConn(s, secured, new(Peer))
		c.accepted = &acceptedConn{Conn: here, leave: func() {}}
		begun := time.Now()
		require.ErrorIs(t, c.Close(), io.ErrClosedPipe, "the client was not told")
		assert.Equal(t, s.options.Lifetimes.ShutdownWait, time.Since(begun))
	})
}

// A handshake has a deadline, whatever the client has sent of it.
func TestAHandshakeOfTLSHasADeadline(t *testing.T) {
	config := &tls.Config{Certificates: []tls.Certificate{testPair(t)}}
	for name, begin := range map[string]func(net.Conn) error{
		"silent": func(net.Conn) error { return nil },
		"partial": func(conn net.Conn) error {
			_, err := conn.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(limitsOnly{}, Options{TLS: config})
				here, there := net.Pipe()
				a := &acceptedConn{Conn: here, peer: new(Peer), leave: func() {}}
				begun := time.Now()
				ended := make(chan time.Duration)
				go func() {
					s.demux.serve(a)
					ended <- time.Since(begun)
				}()
				require.NoError(t, begin(there))
				assert.Equal(t, s.options.Lifetimes.Handshake, <-ended)
				require.NoError(t, there.Close())
			})
		})
	}
}

// Both a fixed configuration and one that is chosen for each handshake have the server's
// protocols and no old version of TLS.
func TestTLSIsThatOfTheServer(t *testing.T) {
	fixed := &tls.Config{Certificates: []tls.Certificate{testPair(t)}, MinVersion: tls.VersionTLS12, NextProtos: []string{"other"}}
	for name, config := range map[string]*tls.Config{
		"fixed":  fixed,
		"chosen": {GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return fixed, nil }},
		"either": {Certificates: fixed.Certificates, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(limitsOnly{}, Options{TLS: config}, func(*Server) Protocol { return namedProtocol("kvd-test") })
			shake := func(client *tls.Config) (tls.ConnectionState, error) {
				here, there := net.Pipe()
				defer func() { _, _ = here.Close(), there.Close() }()
				served := make(chan struct{})
				go func() {
					defer close(served)
					_ = tls.Server(here, s.demux.tls).Handshake() // the client has the error
				}()
				conn := tls.Client(there, client)
				err := conn.Handshake()
				_ = there.Close()
				<-served
				return conn.ConnectionState(), err
			}
			state, err := shake(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h9", "kvd-test"}})
			require.NoError(t, err)
			assert.Equal(t, "kvd-test", state.NegotiatedProtocol)
			assert.EqualValues(t, tls.VersionTLS13, state.Version)
			_, err = shake(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"kvd-test"}, MaxVersion: tls.VersionTLS12})
			require.ErrorContains(t, err, "protocol version")
		})
	}
}

// namedProtocol is a protocol that serves nothing.
type namedProtocol string

func (p namedProtocol) ALPN() string      { return string(p) }
func (p namedProtocol) Matches(byte) bool { return false }
func (p namedProtocol) Serve(c *Conn)     { _ = c.Close() }
