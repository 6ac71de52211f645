// Package daemon turns a [Config] into a running service and brings it to an
// orderly end. It is the only place where engine, server, admin pages, log and
// metrics meet.
//
// # Life
//
//	bind       both listeners, so that a taken port is found before any file is touched
//	admin      answers from here on: /livez yes, /readyz not yet
//	open       the store is recovered
//	serve      gRPC; ready is called
//	end        the context ended: health says so, calls in flight finish and the
//	           store is closed within the grace period
//
// A store that fails for good ([engine.Engine.Failed]), or an operation on the disk
// that does not return for too long, ends the service at once and with an error: what
// a client was told stays true, and only opening the store again finds out what
// else is on the disk.
//
// Nothing that hangs holds up the end for longer than the grace period, also not while
// the store is being opened: then the process exits as if it was killed. Threads that
// wait in the kernel for a frozen file system keep the process in the process table until
// the thaw; its listeners are closed before.
//
// A panic inside the engine ends the process too, from within the panic and with
// [ExitBug]: the goroutine may hold what all others wait for. A panic in what the
// server does by itself, such as decoding, fails one request alone.
//
// # Settings
//
// Every setting is a flag and an environment variable of one name, listed once
// in [Config.Settings]; help, parsing and the line that the service logs at its
// start all read that list.
package daemon
