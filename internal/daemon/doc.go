// Package daemon turns a [Config] into a running service and stops it in order. It is the
// only package that connects engine, server, admin pages, log and metrics.
//
// # Life
//
//	bind       both listeners, so that a taken port is found before any file is touched
//	admin      answers from here on: /livez yes, /readyz not yet
//	open       the store is recovered
//	serve      clients, by frames and gRPC; ready is called
//	end        the context ended: the service is no longer ready, calls in flight
//	           finish, and the store is closed within the grace period
//
// A store that fails for good ([engine.Engine.Failed]), or a disk operation that does not
// return for too long, ends the service at once with an error. What clients were told stays
// true; what else is on the disk is known only after the store is opened again.
//
// A stop never takes longer than the grace period, whatever hangs, also while the store is
// being opened: the process then exits as if it was killed. Threads that wait in the kernel
// for a frozen file system keep the process in the process table until the file system is
// thawed; its listeners are closed before.
//
// A panic inside the engine ends the process too, from within the panic and with
// [ExitBug]: the goroutine may hold locks that all others wait for. A panic in the server's
// own work, such as decoding, fails only the request.
//
// # Settings
//
// Every setting is a flag, an environment variable and an entry of the configuration file, of
// the same name, listed once in
// [Config.Settings]; the help, parsing, and the line that the service logs at its start use
// that list.
package daemon
