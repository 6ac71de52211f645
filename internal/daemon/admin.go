package daemon

import (
	"crypto/tls"
	"net"
	"strings"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/address"
	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/vfs"
)

// unixPrefix begins an admin address that is the name of a socket.
const unixPrefix = "unix:"

// socketNameBytes is the longest name of a socket on every system.
const socketNameBytes = 103

// adminSocket returns the name of the socket for the admin pages, and whether it is to be one.
func (c *Config) adminSocket() (name string, ok bool) { return strings.CutPrefix(c.Admin, unixPrefix) }

// adminTLS reports whether the admin pages are secured by the server's certificate: at an
// address that other machines may reach.
func (c *Config) adminTLS() bool {
	host, _, err := net.SplitHostPort(c.Admin)
	return err == nil && c.TLSCert != "" && !address.IsLoopback(host)
}

// listenAdmin listens for the admin pages.
func (s *process) listenAdmin() (net.Listener, error) {
	if name, ok := s.config.adminSocket(); ok {
		l, err := vfs.ListenUnix(name)
		return socketListener{l}, err
	}
	l, err := address.Listen(s.config.Admin)
	if err != nil || !s.config.adminTLS() {
		return l, err
	}
	config := s.tls.Config()
	config.MinVersion = tls.VersionTLS13
	return tls.NewListener(l, config), nil
}

// socketListener is a listener whose address is as --admin has it.
type socketListener struct{ net.Listener }

// Addr implements net.Listener.
func (l socketListener) Addr() net.Addr { return socketAddr{l.Listener.Addr()} }

type socketAddr struct{ net.Addr }

func (a socketAddr) String() string { return unixPrefix + a.Addr.String() }

// pageErrors takes what the server of the admin pages has to say. Handshakes that fail are for
// debugging: every client that reaches the port can make any number of them.
type pageErrors struct{ log *zap.Logger }

// Write implements io.Writer.
func (e pageErrors) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "http: TLS handshake error") {
		e.log.Debug("admin pages", zap.String("error", text))
	} else {
		e.log.Error("admin pages", zap.String("error", text))
	}
	return len(line), nil
}

// pageGuard returns nil if the admin pages are for every client that reaches them: those of this
// machine, while there is no token that one could show, and those that may open the socket.
func (s *process) pageGuard() *admin.Guard {
	_, socket := s.config.adminSocket()
	if s.auth == nil || socket || s.config.Tokens == "" && !s.config.adminTLS() {
		return nil
	}
	report := s.audit()
	if report == nil {
		report = func(audit.Event) {}
	}
	return &admin.Guard{Auth: s.auth, Audit: report}
}
