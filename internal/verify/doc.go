// Package verify reads one file of a store and checks that it holds what was written: every
// checksum, and what the manifest or the log says of it. The offline check (package inspect)
// and the scrub of a running engine share it.
//
// It changes nothing. The files may be in use, because the files that it reads never change. It
// calls progress with the bytes read after each block, value or frame; progress may block to
// slow it down.
package verify
