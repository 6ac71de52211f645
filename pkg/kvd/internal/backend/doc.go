// Package backend is the seam between the calls of package kvd and what performs them: a
// server, over the network, or an engine in this process.
//
// Package kvd checks arguments and options, keeps a transaction's writes and reads, renews
// leases, and counts the calls in flight. A [Backend] performs single operations. Only a
// backend that can lose an answer knows request ids, retries and deadlines of its own.
//
// The types here have no protobuf in them. Some are the public types of package kvd field
// by field, so that a conversion between the two costs nothing.
package backend
