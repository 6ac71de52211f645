// Package audit writes who did what to files: sign-ins, refusals and administrative calls. It
// records no values, no tokens and no keys.
//
// A file has a JSON object in each line:
//
//	{"time":"2026-01-02T03:04:05.678Z","event":"sign_in","identity":"app","peer":"10.0.0.1:4711"}
//	{"time":"2026-01-02T03:04:05.679Z","event":"refused","identity":"app","peer":"10.0.0.1:4711","method":"Pipeline.Put","reason":"write this key"}
//	{"time":"2026-01-02T03:04:06.680Z","event":"dropped","of":"refused","peer":"10.0.0.1","dropped":4321}
//
// NAME has the events sign_in, once for each connection and credential, and admin, for
// administrative calls. NAME.refused has sign_in_failed and refused, once for each operation:
// every client can make those, so they have a file of their own, in which they displace nothing
// else.
//
// Lines of a class, which are sign-ins, refusals of both kinds, and administrative calls, are at
// most [LinesPerSecond], and half of that from one address; administrative calls from one
// address may be all. What is beyond is dropped. A line with the event dropped says how many
// lines of which class and address, before the next line of the class that comes a second later
// or more, or at the end. Lines wait in memory for the file, at most [queueLines], of which some
// are for administrative calls alone: a disk that stands still delays no request, and what finds
// no room counts as dropped, too.
//
// A file of MaxBytes is renamed to NAME.1 or NAME.refused.1, in place of an older one, and a new
// one begun, so all four have at most four times MaxBytes. Lines are not synced: a power cut may
// lose the newest. One process at a time writes a log: it holds NAME.lock.
package audit
