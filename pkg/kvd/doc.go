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
//	compare, then, else      Client.Execute
//	for a while              TTL
//	many at once, one caller Client.Pipeline
//	many reads, one version  Client.Snapshot, Client.View
//	read, decide, write      Client.Update, Transact
//
// A Client, a [Snapshot] and a [Txn] are all a [Reader], and a Client and a Txn
// a [Writer], so that a helper that takes one of these works in all of them.
//
// # What a call promises
//
// A call returns when its answer is there, when its context ends, or when the
// client's own timeout has passed, which applies if the context has no deadline
// and is kept to within some tens of milliseconds.
// Keys and values that are passed in may be changed as soon as the call returns;
// what it returns belongs to the caller.
//
// Calls that one goroutine makes one after the other happen in that order; what it
// notes in a [Pipeline] does so for each key. Calls
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
// # How operations travel
//
// Gets, Puts and Deletes travel in frames, which package kvdpb/frame describes: on
// connections of their own, which package kvdpb/socket reads and writes if they are
// plain, or, if the server or a proxy before it does not take those, inside a stream
// of gRPC. GetMany has a frame to itself. Everything else, and a value that is large,
// is a call of gRPC.
//
//	caller        encodes its operation into the open frame of its class, and waits
//	sender        sends it, once less than a window of that class is under way
//	receiver      decodes the answers, wakes all callers of the frame at once
//	caller        copies its own value out of the answers
//
// A caller who finds nothing of his class under way is the sender himself. There is
// no queue of calls, no goroutine for each, and no timer: a watchdog for each
// connection keeps the client's timeout. A Put allocates nothing and a Get its
// value, beside what a frame does for all its callers together.
//
// A class is what waits for the same things: reads; writes of one durability; the
// same with a condition or a wish to see what was there before. An answer to one
// does not wait for what only another has asked for.
//
// Who gives up while his frame waits leaves it; its other operations keep their
// places. What happens to those under way when a connection breaks is known for each
// frame: one that was not written whole did nothing; after that its writes are in
// doubt, and are sent again under their names.
//
// What was measured, with callers that each wait for a Get of 128 bytes, on two
// cores that were busy otherwise too, in turns with the client and server that had
// protobuf in streams. The whole service: 64, 256 and 1024 callers had 1.6, 1.8 and
// 1.9 times as many answers a second, and a lone caller his in 0.6 of the time. With a
// server that is little more than a map, 1.9 times as many, in half of the processor
// time, and 0.7.
//
// What was tried beside it. The sender yields the processor once before it takes a
// frame: without that 64 callers share frames of 16 operations in place of 26, for a
// fifth more processor time; yielding more often gains nothing. Windows of one to
// four frames are alike within noise. With 64 callers one connection costs a sixth
// less than two, as its frames are larger, so the second is used once the first has a
// full frame under way.
//
// Writes that wait for the disk have one frame under way on a link, and a second one
// only if it is half full. With two, of whatever size, they are two crowds that the disk
// serves in turns: a sync for each, and twice as many frames. With one, 64 and 256
// callers of which half write have 35 and 116 writes in a sync in place of 21 and 67, and
// callers who only write 41 and 126 in place of 26 and 83. With 4 to 1024 callers on two
// cores, client and server together, an operation takes 0.8 to 0.98 of the processor
// time; there are 0.97 to 1.09 times as many a second, and where something else uses the
// processors 1.1 to 1.4 times. A network that takes several times as long as the server's
// disk makes the writes of few callers wait for up to a round trip more.
//
// Nor does the next frame leave before all whom the last one answered have looked at
// their answers: those who write on are with it then, and nobody need guess how many
// they are or how long to wait for them. And a full frame of such writes has twice as
// much as others, 512 operations or 128 KiB. So 64 callers who only write are 64 in a
// sync, not 42, and 256 are 255, not 135: 0.76 and 0.88 of the processor time of a write,
// client and server together, at 1.5 and 1.2 times the rate (medians of five pairs of
// runs in turns, two cores). With 1,024 callers it is 0.95 of the processor time; where
// half of the operations are reads there is no difference beyond noise. (A timer that
// waits until seven eighths are back did as well for those who only write, and made 64
// callers who also read wait in vain: 0.83 times the rate.)
//
// A frame of reads that is less than a quarter full waits for those in the same way, but
// not for frames under way, nor while writes are. So 64 callers share frames of 60 in
// place of 27, and 16 of 15.5 in place of 10: 0.88 of the processor time of a Get, client
// and server together, 1.06 and 1.10 times the rate, and 0.70 and 0.65 of the time that 99
// of 100 wait at most (medians of pairs of runs in turns, two cores). With one caller, 256
// and 1,024 there is little difference or none. (Where frames up to half full wait, 256
// callers share frames of 127, and have 0.93 times the rate. A receiver that yields and
// then sends the next frame itself is no better than the sender.)
//
// # Overload
//
// Callers who wait for their answers are no overload, however many there are: they
// wait in their lanes, in the order in which they came, until their time runs out. What
// a server has no room for it refuses before anything was done, with [ErrOverloaded] and
// Error.RetryAfter. Such a call is tried again, after that time and a random one, as
// long as there are retries: a tenth of one for each call that succeeds.
//
// What was tried so that calls wait less, with five times what the whole system can do,
// by 8 clients with 1,024 callers each on the two processors of the server, while synced
// writes still had two frames under way. Of 48 ms in the median and 154 in 99 of 100
// calls, about as much was waited in lanes as on the way. But a client cannot tell such a
// load from as many callers in a loop, as it sees only that each caller who is answered
// asks again; and to refuse some costs the others.
// Refused when they come, by the pace of the last 100 ms, callers came back at once and
// took the processors from those who send and receive: a twentieth was answered.
// Newest first and one frame under way, once the oldest had waited 20 ms for 100 ms:
// 25 and 101 ms and an eighth more answers, but who is left behind waits a second to be
// refused, and a slow disk, which needs full windows, looks the same. A fourth of the
// room for reads, and a thirty-second of that for writes, at the server: no change.
//
// # Where the time goes
//
// [Timed] has a read or write say where its time went: in the client, on the way, and
// in the stages of the server. What many callers wait for together, as a frame or a
// sync of the server's log, each of them waits for; so the stages of the server are
// those of all operations that it served together. The server measures all the time,
// keeps what took long in its slow log, which [Client.SlowRequests] reads, and sends
// the stages with the answer to a frame in which somebody asks. Who does not ask pays
// nothing.
//
// # Errors
//
// Every error of a call is an [*Error] that matches one of the sentinels below
// with errors.Is, or context.Canceled or context.DeadlineExceeded. Messages are
// for people.
package kvd
