// Package inspect shows the files of a store to people, with the decoders that
// the engine itself uses, so that what is shown is what the engine sees. In
// other texts: dump, fsck, verify.
//
// [Dump] prints any one file. [Check] reads every byte of a data directory that
// no process has open, and reports what is there and what is wrong with it. A
// [Digest] says in one line what a store contains.
//
// Nothing here changes a file. Check holds a shared lock while it runs, so that no
// server starts meanwhile.
package inspect
