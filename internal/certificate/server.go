package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/livefile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Files are what a server's TLS is made of, as PEM.
type Files struct {
	// Certificate has the server's certificate, followed by those of intermediate
	// authorities, and Key its private key.
	Certificate, Key string
	// ClientCA has the authorities of client certificates; empty: none is asked for.
	ClientCA string
	// ClientOptional lets clients in that have no certificate.
	ClientOptional bool
}

// Server is the TLS of a server. Safe for concurrent use.
type Server struct {
	*livefile.Watcher
	files   Files
	current atomic.Pointer[state]
}

type state struct {
	config *tls.Config
	ends   time.Time // of the server's certificate
}

// Open reads the files. report is told when new ones are in use (nil), or why they are not.
func Open(fsys vfs.FS, files Files, report func(error)) (*Server, error) {
	s := &Server{files: files}
	names := []string{files.Certificate, files.Key}
	if files.ClientCA != "" {
		names = append(names, files.ClientCA)
	}
	var err error
	s.Watcher, err = livefile.Open(livefile.Files{FS: fsys, Names: names, Use: s.use, Report: report})
	return s, err
}

func (s *Server) use(contents [][]byte) error {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", s.files.Certificate, s.files.Key, err)
	}
	switch now := time.Now(); {
	case now.After(pair.Leaf.NotAfter):
		return fmt.Errorf("certificate %s: it expired at %s", s.files.Certificate, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(pair.Leaf.NotBefore):
		return fmt.Errorf("certificate %s: it is not valid before %s; is the clock of this machine right?",
			s.files.Certificate, pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
	if s.files.ClientCA != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(contents[2]) {
			return fmt.Errorf("authorities %s: %w", s.files.ClientCA, errNoCertificate)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		if s.files.ClientOptional {
			config.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	s.current.Store(&state{config, pair.Leaf.NotAfter})
	return nil
}

var errNoCertificate = errors.New("there is no certificate in it; want PEM")

// Config returns a configuration that takes what is in use for each handshake.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.current.Load().config, nil
		},
	}
}

// Ends returns when the server's certificate expires.
func (s *Server) Ends() time.Time { return s.current.Load().ends }
