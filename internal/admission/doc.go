// Package admission bounds the work that a service has under way, the work that
// waits for it, and the time that it waits. In other texts: load shedding,
// concurrency limits, active queue management.
//
// It knows operations, bytes, clients and time. It does not know what the work
// is: a service has one [Gate] for each kind of work that must not wait for
// another kind.
//
// # The way of a piece of work
//
//	TryEnter   if there is room, one atomic operation lets the work in
//	Enter      otherwise the work waits in the line of its client
//	Leave      the work ends; the gate refuses work that waited too long, then lets
//	           clients in by turns
//
// # Turns
//
// Clients take turns by deficit round robin (Shreedhar and Varghese, 1995): with
// each turn a client may let in a quantum of operations, and saves what it could
// not use for its next frame. So the share of a client depends neither on the size of
// its frames nor on their number: a client that floods the gate delays only itself.
// A choice takes constant time for frames up to the quantum, and one more step for each
// further quantum.
//
// Clients of one peer share its turns, also by deficit round robin: the share of a peer
// does not depend on the number of its clients. A client without a peer is a peer by
// itself.
//
// # Time in the line
//
// A queue that empties now and then absorbs bursts, which is its purpose. A standing
// queue only delays all work in it, until callers have given up before their work is
// done. CoDel (Nichols and Jacobson, 2012; RFC 8289) distinguishes the two by the least
// time in the queue over an interval, which a burst does not raise. The reaction is that
// of a server, which can answer, not of a router, which drops one packet at a time
// (Maurer, "Fail at Scale", 2015): while the queue stands, the gate refuses all work that
// has waited longer than the target, and otherwise only work that has waited an interval.
//
// The gate measures the time of the oldest work in all lines, not of the work that
// leaves: with turns, a client with little work passes quickly, and its short waits
// say nothing about the queue. A standing queue counts as good again only once it was
// empty, because the refusals themselves keep its waits below the target.
//
// # Promises
//
//  1. What is inside exceeds a bound by less than one piece of work, the last that
//     entered while there was room.
//  2. What waits likewise. A client with nothing in line may enter its line as long as
//     there is any room in it, however much other clients have waiting, unless its peer
//     has four fifths of all that may wait.
//  3. Enter returns within an interval, or when its context ends: let in or refused,
//     never both. Refused work has nothing inside.
//  4. Work that arrives never passes work that waits.
package admission
