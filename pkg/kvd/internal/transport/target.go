package transport

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
)

// rawTarget is how a raw connection to a target is made. It cannot if dial is nil.
type rawTarget struct {
	dial func(context.Context) (net.Conn, error)
	tls  *tls.Config // nil: plain text
}

// rawTarget understands those names of gRPC that mean one address; the others are
// gRPC's alone, and so is what it reaches through a proxy of the environment.
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

// keepalives notice a peer that has gone while nothing is under way; the watchdog
// notices it otherwise.
var keepalives = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// addressOf returns the address that a target means: "host:port", "unix:path",
// "unix:///path", "dns:///host:port" or "passthrough:///host:port". It is empty if
// only gRPC knows.
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

// defaultPort is where a server listens unless it is told otherwise.
const defaultPort = "7070"

// withPort adds the default port to a target that is a host alone: a name, an IPv4
// address, or an IPv6 address with or without brackets. gRPC would take 443.
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
