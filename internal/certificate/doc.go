// Package certificate makes the TLS configuration of a server from the files that an operator
// gives, and keeps it up to date. [Dev] makes throw-away certificates to try it with.
//
// The server speaks TLS 1.3 alone. A client certificate that is asked for is verified against
// the authorities of one file; package auth says what its owner may do.
//
// Sessions are not resumed: a resumed session is not verified again, and would outlive the
// authority that vouched for its client. Connections last for hours, so a full handshake for
// each costs little.
package certificate
