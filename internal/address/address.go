// Package address says what the addresses mean that an operator configures: of which family
// they are, and which of them other machines can reach.
package address

import "net"

// Listen listens on a TCP address HOST:PORT. A host that is an IPv4 address means IPv4 alone, also
// 0.0.0.0: net.Listen takes that for all addresses of the machine, those of IPv6 too, for which a
// firewall may have no rules. An empty host and [::] mean all.
//
// Errors: those of net.Listen.
func Listen(address string) (net.Listener, error) {
	network := "tcp"
	if host, _, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).To4() != nil {
		network = "tcp4"
	}
	return net.Listen(network, address)
}

// IsLoopback reports whether only this machine can reach a host: localhost, 127.0.0.0/8, ::1.
func IsLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
