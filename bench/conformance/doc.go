// Package conformance runs the conformance suites that other projects publish for
// key-value stores against kvd: each through an adapter on the public client, with
// a server in this process. It holds tests alone.
//
// The adapters are written as a user of the client would write them. They use a
// range delete, an atomic batch, a scan from a key, with a prefix, in reverse and
// without values, and they map errors; nothing is emulated that the client has. The
// empty key, which kvd does not have, is escaped.
//
// Beside these, a file of kvbench is read by the library of its format.
package conformance
