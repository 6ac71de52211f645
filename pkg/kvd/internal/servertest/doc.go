// Package servertest has servers for tests of the client: one that does what a script says, a map
// that answers raw frames and does nothing else, and the service in memory.
package servertest
