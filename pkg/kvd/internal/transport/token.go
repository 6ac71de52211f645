package transport

import (
	"context"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// token returns the token to sign in with, or "" if there is none.
func (o *Options) token() (string, error) {
	if o.Token == nil {
		return "", nil
	}
	token, err := o.Token()
	if err != nil {
		return "", status.Error(codes.Unauthenticated, "get the token: "+err.Error())
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", status.Error(codes.Unauthenticated, "the token has a character that no token has, such as a space or the end of a line")
	}
	return token, nil
}

// checkToken refuses to send a token in plain text to another machine.
func (o *Options) checkToken(target string) error {
	if o.Token == nil || o.TLS != nil || o.Dialer != nil {
		return nil
	}
	network, address := addressOf(target)
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	if network == "unix" || err == nil && (host == "localhost" || ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("%w: a token would travel in plain text to another machine; use kvds:// or WithTLS", backend.ErrInvalid)
}

// bearer puts the token into the header of each gRPC call.
type bearer struct{ options *Options }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.options.token()
	if err != nil || token == "" {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. checkToken decides.
func (bearer) RequireTransportSecurity() bool { return false }
