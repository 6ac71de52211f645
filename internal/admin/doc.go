// Package admin is what operators and their tools read over HTTP:
//
//	/livez           the process works; restart it if not
//	/readyz          it takes requests; route none to it if not. ?verbose says why
//	/metrics         for Prometheus
//	/status.txt      the same in a few lines for people
//	/debug/pprof/    profiles of the running process
//
// Everything is read when it is asked for: nothing here runs, or costs the
// service anything, between two scrapes. Nothing can be changed through it, and
// no key or value is shown. It has no authentication, so it belongs on a
// loopback address.
package admin
