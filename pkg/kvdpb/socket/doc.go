// Package socket reads and writes the connections of raw frames, for the client and
// for the server, with fewer changes of threads than package net.
//
// A system call tells Go's runtime that the processor may have to be taken away, in
// case the kernel keeps the thread for long. For that the runtime has a monitor, a
// thread that sleeps while there is no work. Whoever waits for one frame after the
// other is at work and at rest some thousand times a second, so that each frame wakes
// the monitor, which then looks every 20 us whether it is needed, and each look takes a
// processor from somebody for some 15 us: with 64 callers, half of all changes of
// threads in both processes. But reading or writing what does not wait takes no longer
// than copying it, as memmove does, about which the runtime is told nothing either. So
// small parts are read and written without telling it.
//
// It is told once in 50 ms, since the monitor does more than that: it stops goroutines
// that compute for 10 ms, and polls the network if nobody has for as long. If all
// goroutines were at rest before, and none makes another system call, that comes up to 50
// ms late. A connection that is used more rarely is as it would be without this package.
//
// Measured on two cores with client and server together, which other work kept busy in
// part, in turns with the same without this package (medians of 9 to 15 runs each, with
// a lone caller and with 64, 256 and 1,024 that each wait for a Get of 128 bytes): the
// processor time of an operation, both together, was 0.85, 0.83, 0.82 and 0.90 of that
// before, and 1.03, 1.16, 1.20 and 1.08 times as many were answered. The client changed
// threads 0.67, 0.67, 0.49 and 0.35 times as often. Told once in 10 ms, 1,024 callers still
// had 0.6 of the changes.
//
// Where there is no such call, and under the race detector, which sees what is read and
// written in package syscall, the runtime is told of everything.
package socket
