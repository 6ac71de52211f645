// Package manifest says which files make up one partition. In other texts: the
// version set, the catalogue.
//
// A [Version] is an immutable set of tables, the deltas, newest first, and the base,
// and of the value files that they point into. An [Edit] turns one Version into the next; [Version.Apply] is a pure
// function. A [Set] keeps the current Version of a partition on disk and counts
// who still reads older ones, so that a file goes only when nobody needs it.
//
// The package knows tables by what [kv.TableMeta] says of them. It never opens
// one and does not decide what to compact; internal/compaction does that.
//
// # Garbage in value files
//
// Each table says what it needs of each value file; the sum over a Version is what is
// needed, exactly, for each value is pointed to once. The rest is garbage. A value file
// of which nothing is needed is not in the next Version, and goes like a table.
//
// # Publication
//
// A Version is made current in this order, and each step is durable before the
// next one begins:
//
//  1. The tables and value files: their writer syncs each one before it asks for the
//     edit.
//  2. MANIFEST-000007: written whole and synced, then the directory, which
//     covers the names of the new files as well.
//  3. CURRENT, which names the manifest: replaced by vfs.WriteAtomic.
//  4. Only then do older manifests, tables and value files go.
//
// So a power cut leaves the old Version or the new one, with all its files. A
// step that fails makes the Set fail for good (kv.ErrFailed): which of the two
// the disk holds is then unknown, and only a new Open finds out.
//
// # Files in a partition's directory
//
//	CURRENT             names the manifest
//	MANIFEST-000007     one Version
//	000012.sst          a table
//	000013.val          a value file
//	lost+found/         what Open found and could not explain
//
// All numbers come from one counter and are never used twice, not even for a
// file that a crash left half written. For that each manifest records NextFile,
// a ceiling some way above the numbers in use; numbers from there on are handed
// out only after a manifest with a higher ceiling is durable, and Open goes on
// at the ceiling.
//
// Open deletes what is provably ours and dead: a table, value file or manifest below
// the ceiling that the Version does not name, and the temporary file of a
// publication that a crash cut short. Anything else moves to lost+found.
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
//	     8      4  format version, 2 with value files, 1 without
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
// Version 2 goes on behind that:
//
//	body  = ... | uv value files | file ..., by number | refs of each table, in order
//	file  = uv number | uv size | uv values | uv bytes of values
//	refs  = uv value files | per file, by number: uv number | uv values | uv bytes
//
// The first 16 bytes keep their meaning in every format version. The checksum
// covers partition and number, so a manifest from elsewhere is damage too.
//
// # Cost
//
// A Version is written whole: some 80 bytes a table and 10 for each value file that it
// points into, 25 kB for a partition of
// 10 GiB in tables of 32 MiB, per flush of tens of MiB. That buys a format
// without a log, hence without a torn tail, a replay or a rotation. Publishing
// takes two files synced and the directory synced twice.
package manifest
