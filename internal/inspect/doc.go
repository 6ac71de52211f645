// Package inspect prints and checks the files of a store, with the decoders that the
// engine uses, so that it shows what the engine sees. In other texts: dump, fsck,
// verify.
//
// [Dump] prints any single file. [Check] reads every byte of a data directory that no
// process has open, and reports its files and any damage. Package verify checks
// the single files. A [Digest] summarizes the contents of a store in one line.
//
// Nothing here changes a file. Check holds a shared lock while it runs, so that no
// server can open the store.
package inspect
