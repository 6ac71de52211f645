// Package kvd is the Go client of a kvd server.
//
// A [Client] is made once and shared: calls that many goroutines make in the
// same moment travel in common frames, without any code of theirs and without a
// timer. A lone caller's operation is sent at once.
//
// # What a call promises
//
// A call returns when its answer is there, when its context ends, or when the
// client's own timeout has passed, which applies if the context has no deadline.
// Keys and values that are passed in may be changed as soon as the call returns;
// what it returns belongs to the caller.
//
// A write that returned nil is as durable as was asked for. A write that returned
// an error matching [ErrUncertain] may or may not have happened, now or a little
// later; any other error means that it did not happen. Reads, and writes of which
// nothing was done, are tried again within the deadline.
//
// Calls that one goroutine makes one after the other happen in that order. Calls
// of several goroutines at the same time happen in any order.
//
// # Errors
//
// Every error of a call is an [*Error] that matches one of the sentinels below
// with errors.Is, or context.Canceled or context.DeadlineExceeded. Messages are
// for people.
package kvd
