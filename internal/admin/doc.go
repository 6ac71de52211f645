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
// no key or value is shown.
//
// A [Guard] lets only clients with the right to monitor see metrics and status, and only
// administrators profiles. The first two pages, and the list of all, are for every client.
package admin
