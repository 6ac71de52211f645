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
//	end        the context ended: health says so, calls in flight finish within
//	           the grace period, the store is closed
//
// A store that fails for good ([engine.Engine.Failed]), or a sync of the log that
// does not return for too long, ends the service at once and with an error: what
// a client was told stays true, and only opening the store again finds out what
// else is on the disk.
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
