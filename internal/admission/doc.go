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
//	TryEnter   there is room: one atomic operation, and the work begins
//	Enter      there is none: the work waits in the line of its client
//	Leave      work ends: those who waited too long are refused, then clients take
//	           turns for the room
//
// # Turns
//
// Clients take turns by deficit round robin (Shreedhar and Varghese, 1995): with
// each turn a client may let in a quantum of operations, and saves what it could
// not use for its next frame. So what clients get does not depend on how large
// their frames are, nor on how many they have waiting: one that floods the gate
// waits for itself. To choose takes constant time for frames up to the quantum,
// and one step more for each further quantum.
//
// Clients that belong to one peer share its turns, likewise by deficit round robin: what a
// peer gets does not depend on how many clients it has. One that says of no peer is one
// by itself.
//
// # Time in the line
//
// A queue that empties now and then takes up a burst, which is what it is for. A
// queue that stands does nothing but make all who pass it late, until they are so
// late that their callers have gone and the work is done for nobody. CoDel
// (Nichols and Jacobson, 2012; RFC 8289) tells the two apart by the least time in
// the queue over an interval, which no burst raises. The reaction is that of a
// server, which can answer, not of a router, which drops one packet at a time
// (Maurer, "Fail at Scale", 2015): while the queue stands, all who have waited
// longer than the target are refused, else only those who have waited an
// interval.
//
// What is measured is the time of the eldest in all lines, not of the one that
// leaves: turns let a client with little work pass quickly, and its short waits
// say nothing about the queue. And the queue has to be empty once before it counts
// as good again: what is cut to the target is never above the target.
//
// # Promises
//
//  1. What is inside exceeds a bound by less than one piece of work, the last that
//     came in while there was room.
//  2. What waits likewise; and a client that waits with nothing yet is let into the
//     line as long as there is any room in it, however much others have waiting, unless
//     its peer has four fifths of all that may wait.
//  3. Enter returns within an interval, or when its context ends: let in or refused,
//     never both, and refused means that nothing is inside.
//  4. Nobody who arrives passes those who wait.
package admission
