// Package audit writes who did what to a file: sign-ins, refusals and administrative calls. It
// records no values, no tokens and no keys.
//
// The file has a JSON object in each line:
//
//	{"time":"2026-01-02T03:04:05.678Z","event":"sign_in","identity":"app","peer":"10.0.0.1:4711"}
//	{"time":"2026-01-02T03:04:05.679Z","event":"refused","identity":"app","reason":"write this key"}
//
// The events are sign_in and sign_in_failed, once for each connection and credential;
// refused, once for each operation; admin, for administrative calls; and dropped. Beyond [LinesPerSecond]
// lines are dropped, and a line with the event dropped says how many. Administrative calls
// have such a rate of their own, which no other line takes from. Lines wait in memory
// for the file, at most [queueLines], so a disk that stands still delays no request; what
// finds no room counts as dropped, too. A file of MaxBytes is renamed to NAME.1, in place of
// an older one, and a new one begun, so both have at most twice MaxBytes. Lines are not
// synced: a power cut may lose the newest.
package audit
