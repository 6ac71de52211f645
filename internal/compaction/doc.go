// Package compaction decides which tables of a partition to merge, and merges
// them. In other texts: merging, the cleaner, minor and major compaction.
//
// [Pick] is a pure function from a manifest.Version to a [Choice]; [Run] executes
// the merge that a Choice describes and returns the new tables. The caller opens
// tables, names files, paces merges and installs the edit.
//
// # Lazy leveling
//
// Deltas are tiered, only the base is levelled (Dayan and Idreos, "Dostoevsky",
// SIGMOD 2018, section 3). A flush adds a delta. When DeltaFanIn adjacent
// deltas are of similar size they become one delta (CompactDeltas). When the
// oldest delta is worth a BaseRatio-th of the base, it is merged into the base
// (CompactBase), and likewise when all deltas together are worth twice that. A step
// moves a few tables: those of the delta that overlap the base least per byte, with
// the tables of the base that they overlap. So one step reads about DrainBytes and
// needs as much space, however large the base is.
//
// The number of deltas is bounded: a group of similar size ends before a delta
// over twice as large as its largest, and has fewer than DeltaFanIn members or
// is merged. So the sizes at least double every DeltaFanIn-1 deltas; with equal
// flushes and fan-in 4 there are up to 3 for each factor of 4. MaxDeltas bounds
// the deltas for other sizes.
//
// # Bytes written per byte put
//
// One for the flush; one for each tier, log4(base / (4 * flush)) of them; and
// for the base one plus the bytes that a byte of the delta overlaps, BaseRatio at most.
// That is 8.5 for a base of 128 flushes. TestBytesWrittenPerBytePut measures 6.2,
// because a delta that grew past the threshold overlaps less per byte and drops
// overwritten versions; merging every four flushes into the whole base takes 33.
//
// # Space
//
// When Pick finds nothing to do, the deltas have less than half the bytes of the base:
// that bounds what is stored twice.
//
// A tombstone frees up to one entry of the base when it arrives there, so the
// oldest delta is worth its bytes plus, for each tombstone, a mean entry of the
// base. A range tombstone that no snapshot precedes frees all that it covers: this is
// estimated from the bounds of the base's tables, as if their keys were evenly spread.
// If the tombstones of all deltas together are worth the threshold, the deltas are
// first merged into one. So what is deleted but still stored stays below about
// a BaseRatio-th of the base, whatever the order of deletes. Tombstones that reach the
// base while a snapshot needs what they hide are collected after the snapshot ends.
// The share of tombstones among the entries would be a simpler trigger, but it would
// rewrite the base for every small flush of a queue.
//
// An expired entry is worth as much as a tombstone; each table says how many have
// expired at a given time (kv.TableStats). A table of the base is dropped unread once
// all of it has expired, and is rewritten alone once a BaseRatio-th of it is dead:
// expired, tombstones, or older versions that were kept for a snapshot.
//
// A whole table of the base, or a whole delta, that range tombstones hide from every
// reader is dropped without being read, once no snapshot precedes them.
//
// # At rest
//
// For a store that is rarely written to, Policy.AtRest picks the merges: a BaseRatio of 16
// and at most 10 percent of garbage in value files. So deltas have at most an eighth of
// the base's bytes, deleted data that is still stored at most a sixteenth, and all stored
// bytes stay below 1.125/0.9 of the live ones, a quarter more. What is small may have
// overwritten what is large, so deltas are also merged into the base when they have a
// sixteenth of the entries below them: what they hide is then a sixteenth at most if those
// of a table are about equally large. A burst of writes followed by rest costs up to 1+16
// bytes written per byte of keys and inline values, and 0.9/0.1 = 9 per byte of separated
// values; with minutes of rest between bursts of a tenth of the store, each rest writes
// the store once more. Under load the bounds above hold.
//
// # Separated values
//
// A merge, a flush included, writes values of at least ValueRule.Threshold bytes to
// value files, in the order of keys, and pointers to them to tables. A later merge
// copies pointers and reads no value. All rules above count tables with the values that
// they point to, because dropping an entry frees both.
//
// Values that no table points to are garbage, which the Version knows to the byte. Once
// it is more than Policy.MaxGarbage percent of the bytes in value files, Pick chooses
// tables that point into the files with the largest share of garbage, adjacent tables of
// the base or one delta, only to rewrite them and those values. From four fifths of the
// limit on, a merge that is due anyway does so too; under load this is the main way,
// because drains reach all of the base and extra merges would write it once more. A value
// file is removed when the last table that pointed into it was rewritten.
//
// At rest garbage is therefore at most MaxGarbage percent; with the default, value files
// hold twice what tables point to, which is at most half as much again as what is live:
// 3 bytes for each live one. The cost is the bytes rewritten, u/(1-u) per byte
// put for files emptied when a share of u is needed, where u is well below the mean share
// (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File
// System", TOCS 1992, section 3.4). TestValueFilesStayBounded measures 0.17 for uniform
// overwrites.
//
// # What may be dropped
//
// See [Snapshots] and [Rule]. A merge may drop an older version of a key if no snapshot
// lies between it and the next newer version, or between it and a range tombstone of the
// merge that covers it. It may drop a tombstone only in a CompactBase, which by E4 of
// manifest.Version.Apply reads every older version of its keys, and only if no
// snapshot is older than the tombstone.
//
// E4 holds for a whole range too. The bounds of a table span what its range
// tombstones cover, so a CompactBase reads every table of the base with a covered
// key; no other table of the same delta has one, because tables of a run are
// disjoint by these bounds.
//
// # Range tombstones
//
// A merge reaches a range tombstone at its start, before everything that it hides, so
// one pass is enough. Where a newer one covers an older one and no snapshot lies
// between, the older one is cut to begin at the end of the newer, or dropped. So
// overlaps disappear merge by merge.
//
// Where an output table is cut, range tombstones that extend past it are cut too: one
// part ends directly after the last key, the other begins there in the next table. A
// file stores the end of a range tombstone at its start, so entries after a range
// tombstone wait in memory until its end, or until the table is cut, which then happens
// at 8 MiB.
//
// # Reading back
//
// Before Run returns, it reads every block of every new table and value file back from
// its file and verifies it. That detects faults between computing the checksum and the
// page cache: a bit flip in memory, a misdirected write. It does not detect damage by
// the disk, because the bytes come from the page cache. The inputs, tables or log
// segments, are removed only afterwards; if an output is damaged, the merge is tried
// again. This makes BenchmarkRun take 1.2 times the processor time (bench/NOTES.md).
//
// # The page cache
//
// Tables stay in the page cache when they are written: readers were using the tables
// that they replace, which leave it when they are removed. Dropping new tables from it
// raised the 99th percentile of gets in PUT_HEAVY from 0.2 to 11 ms (bench/NOTES.md).
package compaction
