// Package kvd is the Go client of a kvd server.
//
// A [Client] is made once and shared: calls that many goroutines make in the
// same moment travel in common frames, without any code of theirs and without a
// timer. A lone caller's operation is sent at once.
//
// # Overview
//
//	to read                  Get, GetItem, GetMany, Scan: a Reader
//	to write                 Put, Delete, DeleteRange: a Writer
//	many writes, all or none Batch and Client.Apply
//	if nobody was faster     IfAbsent, IfPresent, IfVersion, IfValue
//	for a while              TTL
//	many reads, one version  Client.Snapshot, Client.View
//	read, decide, write      Client.Update, Transact
//
// A Client, a [Snapshot] and a [Txn] are all a [Reader], and a Client and a Txn
// a [Writer], so that a helper that takes one of these works in all of them.
//
// # What a call promises
//
// A call returns when its answer is there, when its context ends, or when the
// client's own timeout has passed, which applies if the context has no deadline.
// Keys and values that are passed in may be changed as soon as the call returns;
// what it returns belongs to the caller.
//
// Calls that one goroutine makes one after the other happen in that order. Calls
// of several goroutines at the same time happen in any order. Each call on its
// own, a batch and a commit included, happens at one moment between its beginning
// and its end.
//
// # Exactly once
//
// A write that returned nil is as durable as was asked for, and was applied once,
// even if connections broke and it had to be sent several times: each write has a
// name, a random number of the client and a sequence number, and the server
// remembers the names of recent writes, also across its own restarts.
//
// A write that returned an error matching [ErrUncertain] may or may not have
// happened, now or a little later: no answer came in time, or the server was away
// for so long that it no longer knows. Any other error means that it did not and
// will not happen. A program that calls again after ErrUncertain makes another
// write, with another name; where that matters it should ask first what is there,
// or write under a condition.
//
// # Versions and conditions
//
// Every write has a version, higher than that of each write before it, which
// reads report. A write under a condition happens only if the key is then as the
// condition says, and is [ErrConflict] otherwise. IfVersion makes a safe loop of
// reading, computing and writing one key; for several keys there are transactions.
//
// # Transactions
//
// Update runs a function in a [Txn] that reads from a snapshot and keeps its
// writes to itself until they are committed, all at one version. They are
// committed only if nothing that was read has been written since, also no new key
// in a range that was scanned; else the function is run again. Transactions are
// therefore strictly serializable: each seems to happen at one moment, the later
// after the earlier. They take no locks: those that only read never fail for
// others, and those that meet on hot keys run several times.
//
// # Errors
//
// Every error of a call is an [*Error] that matches one of the sentinels below
// with errors.Is, or context.Canceled or context.DeadlineExceeded. Messages are
// for people.
package kvd
