// Package repair makes a new store of what can still be read of a damaged one. In other
// texts: salvage, recovery tool.
//
// R1. The damaged store is not changed: its directory is locked as by a reader, and every
// operation that would write to it is refused (see source).
//
// R2. Nothing is invented: each version of a key in the new store was written at that
// version in the old one. Every byte that is used was verified by its own checksum. These
// checksums do not cover the store: a table or value file of another store is told apart by what
// the manifest says of it, or else is taken for the right one.
//
// R3. Every entry whose block verifies, and every record whose frame verifies, is in the new
// store, unless a newer version of the key makes it invisible, or may do so and is in a lost
// part of the log (see applied).
//
// R4. What is not there is covered by the report: see Loss.
//
// R5. Until the repair has ended, the new directory is no store: it has the file REPAIRING
// and no STORE, which is written last.
//
// # What is done with each part
//
// STORE. Without it, the id comes from CLOCK or, without that too, from the headers of the log's
// segments. If CLOCK and the log agree, and STORE does not, STORE is that of another store. The
// partition count is the smallest likely one, from the number of directories on, under which every
// key that was sampled lies in its own partition.
//
// Commit log. If recovery accepts it, the repair does what recovery does. Otherwise each
// frame that verifies counts, also after damage (see wal.Salvage). The records go to the new
// log with their numbers and request ids. A log of another store is not used.
//
// A partition of which everything verifies is copied, file by file; the copy is verified. Of
// any other partition, the repair merges what verifies, all versions of each key by their
// sequence numbers, into one new delta: whole tables, the blocks of damaged tables, and all
// writes in the log. So a write that a table has lost and the log still has is there.
//
// Value files. A value is taken if its own record verifies, whatever else its file lost. Without a
// manifest every value is read, also those in whole files.
//
// Manifest. If CURRENT or its manifest is lost, or a newer table proves that they are an older
// copy, the manifest with the highest number counts,
// but only if it is provably complete: it is not older than the one that CURRENT names, all
// of its files are there with their sizes, and there is no table with a higher number.
// Otherwise all tables in the directory count. Which of them were in use is then unknown: a
// table that a merge had replaced, and that was not deleted yet, may hold keys that were
// deleted or overwritten since. The order of versions does not depend on the order of tables,
// because each entry has its sequence number; the report names all keys of the partition.
//
// # A backup
//
// For ranges of keys in which anything may be missing, a backup of the store says what was
// there at its version; what may be missing then are later versions: see backup.
//
// # In place
//
// If nothing but tables and value files is damaged, a store can be repaired where it is, at the
// cost of the damaged tables and not of the whole store: see InPlace.
//
// # Memory and disk
//
// The filter, the index and one block of each table that is read at a time; one damaged
// table whose index is lost; the range tombstones of a partition; and Options.MemoryBytes for
// the writes in the log. The new store needs as much space as the old one, and while a
// damaged partition is merged, that partition's size once more.
package repair
