package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/pkg/kvd"
)

const (
	defaultAddr = "127.0.0.1:7070"
	envAddr     = "KVD_ADDR"
	envTimeout  = "KVD_TIMEOUT"
)

// connection is the flags of commands that talk to a server.
type connection struct {
	addr    string
	timeout time.Duration
	envErr  error // the timeout in the environment is invalid
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
	return c
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
	client, err := kvd.Open(c.addr, kvd.WithTimeout(c.timeout))
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
