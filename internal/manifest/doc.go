// Package manifest records which files make up one partition. In other texts: the
// version set, the catalogue.
//
// A [Version] is an immutable set of tables, the deltas, newest first, and the base,
// and of the value files that they point into. An [Edit] turns one Version into the
// next; [Version.Apply] is a pure function. A [Set] keeps the current Version of a
// partition on disk and counts the readers of older ones, so that a file is removed
// only when no reader needs it. Version, Apply and Set list the invariants.
//
// The package knows of tables what [kv.TableMeta] holds. It never opens a table and
// does not decide what to compact; internal/compaction does that.
//
// # Garbage in value files
//
// Each table says what it needs of each value file. Each value is pointed to once, so
// the sum over a Version is exactly what is needed; the rest is garbage. The next
// Version omits a value file of which nothing is needed, and the file is removed like a
// table.
//
// # Publication
//
// A Version is made current in this order, and each step is durable before the
// next one begins:
//
//  1. The tables and value files: their writer syncs each one before it requests the
//     edit.
//  2. MANIFEST-000007: written whole and synced, then the directory, which
//     covers the names of the new files as well.
//  3. CURRENT, which names the manifest: replaced by vfs.WriteAtomic.
//  4. Only then are older manifests, tables and value files removed.
//
// So a power cut leaves the old Version or the new one, with all its files. A
// step that fails makes the Set fail for good (kv.ErrFailed), because it is unknown
// which of the two the disk holds until the next Open; S4 has the exception.
//
// # Files in a partition's directory
//
//	CURRENT             names the manifest
//	MANIFEST-000007     one Version
//	000012.sst          a table
//	000013.val          a value file
//	lost+found/         files that Open found and could not explain
//
// All numbers come from one counter and are never used twice, not even for a
// file that a crash left half written. To ensure this each manifest records NextFile,
// a ceiling some way above the numbers in use; numbers from there on are handed
// out only after a manifest with a higher ceiling is durable, and Open continues
// at the ceiling.
//
// Open deletes files that kvd certainly wrote and no longer needs: a table, value file
// or manifest below the ceiling that the Version does not name, and the temporary file
// of an interrupted publication. Any other file moves to lost+found. So does every table, value
// file and manifest that the Version does not name, if one that it names is missing: the manifest
// may then be an older copy (see Options.AllowDamaged).
//
// # CURRENT
//
// One line of text:
//
//	kvd-current 1 partition 3 MANIFEST-000007 5f3a09c1
//
// The second word is the format version, the last the CRC32C, in hexadecimal,
// of all bytes before it. The line ends with a newline and the file with it.
//
// # MANIFEST
//
// Numbers are little-endian; uv is an unsigned varint in its shortest form.
//
//	offset   size
//	     0      8  magic "kvdMANIF"
//	     8      4  format version, 3 with a position, else 2 with value files, 1 without
//	    12      4  CRC32C of bytes [0, 12): tells a newer format from damage
//	    16      4  partition
//	    20      8  number of this manifest
//	    28      8  body length n
//	    36      n  body
//	  36+n      4  CRC32C of bytes [0, 36+n)
//
//	body  = uv next file | uv flushed seq | uv max seq
//	      | uv deltas | run ..., newest first | run, the base
//	run   = uv tables | table ...
//	table = uv number | uv size | uv entries | uv deletes
//	      | uv min seq | uv max seq - min seq
//	      | uv key length | smallest key | uv key length | largest key
//
// Version 2 continues:
//
//	body  = ... | uv value files | file ..., by number | refs of each table, in order
//	file  = uv number | uv size | uv values | uv bytes of values
//	refs  = uv value files | per file, by number: uv number | uv values | uv bytes
//
// Version 3 continues after the body of version 1 with the position, and after that, if there
// are value files, as version 2 does:
//
//	body  = ... | uv length of the position | position, 1 byte to 64 KiB | ...
//
// The first 16 bytes keep their meaning in every format version. The checksum
// covers partition and number, so a misplaced manifest is damage too.
//
// # Cost
//
// A Version is written whole: some 80 bytes per table and 10 for each value file that it
// points into, 25 kB for a partition of 10 GiB in tables of 32 MiB, per flush of tens of
// MiB. So the format has no log, and no torn tail, replay or rotation. Publishing syncs
// two files, and the directory twice.
package manifest
