package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/resolver"

	"github.com/kvd-db/kvd/internal/frame"
)

// rawTarget makes connections for raw frames to a target; if dial is nil, there are none.
type rawTarget struct {
	dial func(context.Context) (net.Conn, error)
	tls  *tls.Config // nil: plain text
}

// rawTarget returns how to connect to a target for raw frames. It supports targets that mean one
// address. For other names of gRPC, and for addresses behind a proxy of the environment, there are no
// such connections.
func (o *Options) rawTarget(target string) rawTarget {
	if o.GRPCOnly {
		return rawTarget{}
	}
	network, address := addressOf(target)
	var t rawTarget
	switch {
	case o.Dialer != nil:
		t.dial = func(ctx context.Context) (net.Conn, error) { return o.Dialer(ctx, target) }
	case address == "" || network == "tcp" && proxied(address):
		return rawTarget{}
	default:
		dialer := &net.Dialer{KeepAliveConfig: keepalives}
		t.dial = func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, network, address) }
	}
	if o.TLS != nil {
		t.tls = o.TLS.Clone()
		t.tls.NextProtos = []string{frame.ALPN}
		if t.tls.ServerName == "" {
			if host, _, err := net.SplitHostPort(address); err == nil {
				t.tls.ServerName = host
			}
		}
	}
	return t
}

// keepalives detect a lost peer while nothing is in flight. The watchdog detects it otherwise.
var keepalives = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// addressOf returns the address of a target of the form "host:port", "unix:path", "unix:///path",
// "dns:///host:port" or "passthrough:///host:port", and nothing for other targets.
func addressOf(target string) (network, address string) {
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		if path, ok = strings.CutPrefix(path, "//"); ok && !strings.HasPrefix(path, "/") {
			return "", ""
		}
		return "unix", path
	}
	for _, scheme := range []string{"dns:///", "passthrough:///", "dns:", "passthrough:"} {
		if rest, ok := strings.CutPrefix(target, scheme); ok {
			target = rest
			break
		}
	}
	if strings.Contains(target, "/") {
		return "", ""
	}
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", ""
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "" // it is another scheme
	}
	return "tcp", net.JoinHostPort(host, port)
}

// wrongEndpoint says why no call could reach an endpoint, and returns "" if a call may reach it: a name
// may be resolved later. The names of schemes are left to the resolvers that gRPC has for these.
func wrongEndpoint(target string) string {
	if target == "" {
		return "is empty"
	}
	scheme, name, has := strings.Cut(target, "://")
	switch {
	case has && resolver.Get(strings.ToLower(scheme)) == nil:
		return fmt.Sprintf("has the scheme %q, which is not known", scheme)
	case has && scheme == "unix":
		if !strings.HasPrefix(name, "/") {
			return "names no absolute path of a socket after unix://"
		}
		return ""
	case has:
		if _, name, _ = strings.Cut(name, "/"); name == "" {
			return "has no name after its scheme"
		}
		return ""
	}
	if scheme, name, has = strings.Cut(target, ":"); has && resolver.Get(scheme) != nil {
		if name == "" {
			return "has no name or path after its scheme"
		}
		return ""
	}
	return wrongAddress(withPort(target))
}

// wrongAddress is wrongEndpoint for "host:port". The host may be empty, which is this machine, and the port
// may have the name of a service.
func wrongAddress(address string) string {
	if strings.Contains(address, "/") {
		return "has a slash, and an address ends after its port"
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		why := err.Error()
		if of, ok := errors.AsType[*net.AddrError](err); ok {
			why = of.Err
		}
		return "is no address: " + why
	}
	number, err := strconv.Atoi(port)
	switch {
	case port == "":
		return "has no port after its colon"
	case err == nil && (number < 1 || number > math.MaxUint16):
		return fmt.Sprintf("has the port %s, which is not from 1 to %d", port, math.MaxUint16)
	case host == "" && strings.HasPrefix(address, "["):
		return "has nothing between its brackets"
	}
	if strings.ContainsFunc(host, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "has a space or a control character in its host"
	}
	if i := strings.IndexAny(host, "@?#"); i >= 0 {
		return fmt.Sprintf("has the character %c in its host", host[i])
	}
	return ""
}

// defaultPort is the default port of a server.
const defaultPort = "7070"

// withPort adds the default port to a target that is only a host: a name, an IPv4 address, or an IPv6
// address with or without brackets. Without a port gRPC would use 443.
func withPort(target string) string {
	bare := strings.TrimSuffix(strings.TrimPrefix(target, "["), "]")
	switch {
	case target == "" || strings.Contains(target, "/"):
		return target
	case net.ParseIP(bare) != nil, !strings.ContainsAny(target, ":[]"):
		return net.JoinHostPort(bare, defaultPort)
	}
	return target
}

// proxied reports whether the environment names a proxy for an address.
func proxied(address string) bool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: address}})
	return err != nil || proxy != nil
}
