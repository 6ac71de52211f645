// Package rawconn reads and writes the connections of raw frames, for client and server,
// with fewer thread switches than package net.
//
// Before a system call a goroutine tells Go's runtime that its processor may have to be
// taken away, in case the kernel blocks the thread. The runtime's monitor thread
// (sysmon) sleeps while there is no work. A goroutine that waits for one frame after
// the other goes idle and resumes thousands of times a second, so each frame wakes the
// monitor. The monitor then checks every 20 us whether it is needed, and each check
// takes a processor from other goroutines for about 15 us. With 64 callers this is half
// of all thread switches in both processes. A read or write that does not block takes
// no longer than copying its bytes, and the runtime is not told of a memmove either. So
// small non-blocking reads and writes use syscall.RawSyscall, which does not tell the
// runtime.
//
// One read in 50 ms does tell it, since the monitor has other duties: it preempts
// goroutines that compute for 10 ms, and polls the network if that has not been done
// for as long. If all goroutines were idle before and none makes another system call,
// these duties start up to 50 ms late. A connection that is used more rarely behaves as
// with package net.
//
// The processor time of a Get with 64 callers was 0.83 of that with package net: see
// bench/NOTES.md.
//
// On other systems, and under the race detector, which tracks what package syscall
// reads and writes, every call tells the runtime.
package rawconn
