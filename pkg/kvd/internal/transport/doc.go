// Package transport is the network beneath the client: a [Network] is the backend.Backend that a
// server is.
package transport
