package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

const (
	defaultAddr = "127.0.0.1:7070"
	envAddr     = "KVD_ADDR"
	envTimeout  = "KVD_TIMEOUT"
	envTLSCA    = "KVD_TLS_CA"
	envTLSCert  = "KVD_TLS_CERT"
	envTLSKey   = "KVD_TLS_KEY"
	envToken    = "KVD_TOKEN"      // the token itself
	envTokenOf  = "KVD_TOKEN_FILE" // #nosec G101 -- the name of a variable
)

// clientEnv lists the variables of client commands that are no settings of the server.
var clientEnv = []string{envAddr, envTimeout, envTLSCA, envToken, envTokenOf}

// connection is the flags of commands that talk to a server.
type connection struct {
	addr    string
	timeout time.Duration
	// tlsCA, tlsCert and tlsKey are the names of files; if all are empty, the connection is
	// plain text.
	tlsCA, tlsCert, tlsKey string
	// tokenFile is the name of a file with the token; token is what the environment has.
	tokenFile, token string

	envErr error // the timeout in the environment is invalid
}

const defaultTimeout = 5 * time.Second

// connection adds the flags to cmd. The environment gives their defaults.
func (a *app) connection(cmd *cobra.Command) *connection {
	c := &connection{}
	addr := a.getenv(envAddr)
	if addr == "" {
		addr = defaultAddr
	}
	timeout := defaultTimeout
	if text := a.getenv(envTimeout); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			c.envErr = usagef("environment variable %s=%q is not a duration such as 500ms or 5s", envTimeout, text)
		}
		timeout = d
	}
	cmd.Flags().StringVar(&c.addr, "addr", addr, "address of the server, or several addresses of the same store separated by commas [$"+envAddr+"]")
	cmd.Flags().DurationVar(&c.timeout, "timeout", timeout, "longest time of one operation [$"+envTimeout+"]")
	cmd.Flags().StringVar(&c.tlsCA, "tls-ca", a.getenv(envTLSCA), "file with the authorities that may vouch for the server, in PEM; connections are then encrypted [$"+envTLSCA+"]")
	cmd.Flags().StringVar(&c.tlsCert, "tls-cert", a.getenv(envTLSCert), "file with the client's certificate in PEM [$"+envTLSCert+"]")
	cmd.Flags().StringVar(&c.tlsKey, "tls-key", a.getenv(envTLSKey), "file with the private key of that certificate [$"+envTLSKey+"]")
	cmd.Flags().StringVar(&c.tokenFile, "token-file", a.getenv(envTokenOf), "file with the token to sign in with [$"+envTokenOf+"]; or the token itself in $"+envToken)
	c.token = a.getenv(envToken)
	return c
}

// signIn returns the options for the token; none if there is no token.
func (c *connection) signIn() ([]kvd.Option, error) {
	if c.tokenFile == "" {
		if c.token == "" {
			return nil, nil
		}
		return []kvd.Option{kvd.WithToken(strings.TrimSpace(c.token))}, nil
	}
	text, err := vfs.ReadSmall(vfs.OS, c.tokenFile, auth.MaxTokenBytes)
	if err != nil {
		return nil, usagef("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return nil, usagef("--token-file %s: it is empty", c.tokenFile)
	}
	return []kvd.Option{kvd.WithToken(token)}, nil
}

// tlsConfig returns nil for plain text.
func (c *connection) tlsConfig() (*tls.Config, error) {
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return nil, usagef("--tls-cert and --tls-key belong together; give both, or neither")
	}
	if c.tlsCA == "" && c.tlsCert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.tlsCA != "" {
		authorities, err := readPEM("--tls-ca", c.tlsCA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, usagef("--tls-ca %s: there is no certificate in it; want PEM", c.tlsCA)
		}
	}
	if c.tlsCert != "" {
		certificate, err := readPEM("--tls-cert", c.tlsCert)
		if err != nil {
			return nil, err
		}
		key, err := readPEM("--tls-key", c.tlsKey)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, usagef("--tls-cert %s with --tls-key %s: %w", c.tlsCert, c.tlsKey, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// maxPEM bounds files of certificates. Guessed: more than the authorities of a system.
const maxPEM = 4 << 20

func readPEM(flag, name string) ([]byte, error) {
	text, err := vfs.ReadSmall(vfs.OS, name, maxPEM)
	if err != nil {
		return nil, usagef("%s: %w", flag, err)
	}
	return text, nil
}

// getenv returns the value of an environment variable.
func (a *app) getenv(name string) (value string) {
	for _, entry := range a.environ {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

// with calls fn with a client and closes it.
func (c *connection) with(fn func(*kvd.Client) error) (err error) {
	if c.envErr != nil {
		return c.envErr
	}
	config, err := c.tlsConfig()
	if err != nil {
		return err
	}
	options, err := c.signIn()
	if err != nil {
		return err
	}
	options = append(options, kvd.WithTimeout(c.timeout))
	if config != nil {
		options = append(options, kvd.WithTLS(config))
	}
	client, err := kvd.Open(c.addr, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err = fn(client); err != nil && isAdminAddress(c.addr, err) {
		return &adminAddressError{c.addr, err}
	}
	return err
}

// adminAddressError reports that --addr names the admin address of a server.
type adminAddressError struct {
	addr string
	err  error
}

func (e *adminAddressError) Error() string {
	return fmt.Sprintf("%s is the admin address of a kvd server, which serves health, metrics and profiles alone; "+
		"give the address for clients, by default 127.0.0.1:7070, with --addr or %s", e.addr, envAddr)
}

func (e *adminAddressError) Unwrap() error { return e.err }

// isAdminAddress reports whether the server at an address that does not serve clients
// serves the admin pages.
func isAdminAddress(addr string, err error) bool {
	if !errors.Is(err, kvd.ErrUnavailable) && !errors.Is(err, kvd.ErrInvalid) && !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	asking := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := asking.Get("http://" + addr + "/")
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }() // only read
	page, err := io.ReadAll(io.LimitReader(response.Body, int64(len(admin.Index))))
	return err == nil && string(page) == admin.Index
}

// durability is the flag of commands that write.
type durability struct{ level kvd.Durability }

var durabilityLevels = map[string]kvd.Durability{
	"default": kvd.Default, "memory": kvd.Memory, "buffered": kvd.Buffered, "sync": kvd.Sync,
}

func (d *durability) flag(cmd *cobra.Command) {
	cmd.Flags().Var(d, "durability", "memory, buffered or sync; default: the setting of the server")
}

func (d *durability) Set(text string) error {
	level, ok := durabilityLevels[text]
	if !ok {
		return errors.New("want memory, buffered or sync")
	}
	d.level = level
	return nil
}

func (d *durability) String() string {
	for name, level := range durabilityLevels {
		if level == d.level {
			return name
		}
	}
	return ""
}

func (d *durability) Type() string { return "level" }
