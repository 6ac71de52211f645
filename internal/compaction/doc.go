// Package compaction decides which tables of a partition to merge, and merges
// them. In other texts: merging, the cleaner, minor and major compaction.
//
// [Pick] is a pure function from a manifest.Version to a [Choice]; [Run] does
// the merge that a Choice asks for and returns the new tables. Opening tables,
// naming files, pacing and installing the edit are the caller's.
//
// # Lazy leveling
//
// Deltas are tiered, only the base is levelled (Dayan and Idreos, "Dostoevsky",
// SIGMOD 2018, section 3). A flush adds a delta. When DeltaFanIn neighbouring
// deltas are of similar size they become one delta (CompactDeltas). When the
// oldest delta is worth a BaseRatio-th of the base, it moves into the base
// (CompactBase), and likewise when all deltas together are twice that. It moves
// a few tables at a time: those of its tables that overlap the base least per
// byte, with the tables of the base that they overlap. So one step reads
// DrainBytes, however large the base is, and needs as much space.
//
// How many deltas there can be: a group of similar size ends before a delta
// over twice as large as its largest, and has fewer than DeltaFanIn members or
// is merged. So the sizes at least double every DeltaFanIn-1 deltas; with equal
// flushes and fan-in 4 there are up to 3 for each factor of 4. MaxDeltas bounds
// what odd sizes could do.
//
// # Bytes written per byte put
//
// One for the flush; one for each tier, log4(base / (4 * flush)) of them; and
// for the base one plus what a byte of the delta overlaps, BaseRatio at most.
// That is 8.5 for a base of 128 flushes. TestBytesWrittenPerBytePut measures
// less, as a delta that grew past the threshold overlaps less per byte and drops
// what was written twice:
//
//	base of            8    32   128 flushes of random keys
//	this policy      4.6   5.3   6.2
//	whole base       3.1   9.1    33
//
// The second row merges every four flushes into the whole base, as the oldest
// designs do.
//
// # Space
//
// Once Pick comes to rest, the deltas have less than half the bytes of the base:
// that bounds what is stored twice. (Without that rule the test stored 2.5 times
// the live data, and wrote a fifth less.)
//
// A tombstone frees up to one entry of the base when it arrives there, so the
// oldest delta is worth its bytes plus, for each tombstone, a mean entry of the
// base. A range tombstone frees all that it covers: that is estimated from the
// bounds of the base's tables, as if their keys lay evenly between them, once no
// snapshot precedes it. If the tombstones of all deltas together are worth the threshold, the
// deltas become one first. So what is deleted but still stored stays below about
// a BaseRatio-th of the base, whatever the order of deletes. Tombstones that
// reach the base while a snapshot needs what they hide are collected when it is
// gone. A share of tombstones among the entries would be the simpler rule, but
// it would write the base anew for a queue's every small flush.
//
// An entry that has expired is worth as much as a tombstone; each table says how many
// have by now (kv.TableStats). A table of the base goes unread once all of it has expired,
// and is written anew alone once a BaseRatio-th of it is dead: expired, tombstones, or
// older versions that were kept for a snapshot.
//
// What range tombstones hide from every reader, a whole table of the base or a whole
// delta, is dropped without being read, once no snapshot precedes them.
//
// # At rest
//
// A store that is hardly written to has its merges picked by Policy.AtRest: a BaseRatio
// of 16 and at most 10 percent of garbage in value files. So deltas have at most an eighth
// of the base's bytes, deleted data that is still stored at most a sixteenth, and all of
// it together stays below 1.125/0.9, a quarter more than what is live. A burst of writes
// that ends in rest costs up to 1+16 bytes written per byte of keys and inline values, and
// 0.9/0.1 = 9 per byte of values; in rests of minutes between bursts of a tenth of the
// store that is one more write of the store for each. Under load the bounds above hold.
//
// # Values that are apart
//
// A merge, a flush included, puts values of at least ValueRule.Threshold bytes into
// value files, in the order of keys, and into tables pointers to them. A later merge
// passes pointers on and reads no value. Tables weigh in all rules above with the
// values that they point to, for that is what dropping an entry frees.
//
// What no table points to is garbage; the Version knows it to the byte. Once it is more
// than Policy.MaxGarbage percent of what lies in value files, Pick chooses tables that
// point into the files with the largest share of it, some neighbours of the base or one
// delta, only to write them and those values anew. From four fifths of that on a merge
// that is due anyway does so on its way, which is the rule under load: keys are drained
// into all of the base, and the extra merges would write them once more. Each file has
// gone when the last table that pointed into it was written anew.
//
// At rest garbage is therefore at most MaxGarbage percent; with the default value files
// hold twice what tables point to, which is at most half as much again as what is live:
// 3 bytes for each live one. What that costs is the bytes written anew, u/(1-u) per byte
// put for files emptied at a needed share of u, where u is well below the mean share
// (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File
// System", TOCS 1992, section 3.4). TestValueFilesStayBounded measures 0.17 for uniform
// overwrites, 0 for keys overwritten in order, and 0.46 with a bound of 30 percent.
//
// # What may be dropped
//
// See [Snapshots] and [Rule]: an older version of a key if no snapshot lies
// between it and the next newer one, or between it and a range tombstone of the
// merge that covers it; a tombstone only in a CompactBase, which by E4 of
// manifest.Version.Apply reads every older version of its keys, and only if no
// snapshot is older than it.
//
// E4 holds for a whole range too. The bounds of a table span what its range
// tombstones cover, so a CompactBase reads every table of the base with a covered
// key; and no other table of the same delta has one, because tables of a run are
// disjoint by these bounds.
//
// # Range tombstones
//
// A merge meets a range tombstone at its start, before all that it hides, and so
// needs no other pass. Where a newer one covers an older one and no snapshot lies
// between, the older one begins behind the newer, or goes. What overlaps is so
// taken apart merge by merge.
//
// Where a table is cut, so are the range tombstones that reach past it: one part
// ends just behind the last key, the other begins there in the next table. The
// end of a range tombstone stands in the file at its start, so entries behind one
// wait in memory until it has ended or the table is cut, which then happens at
// 8 MiB. (Left out: to write a table again once its end is known, for that doubles
// the writing; to cut at bounds of the inputs, for a run of one table has none.)
//
// # Read back
//
// Before Run returns, every block of every new table and value file is read back from
// its file and verified. That finds what went wrong between the checksum and the page
// cache: a bit that flipped in memory, a write that went elsewhere. It does not find
// what the disk itself damages, as the bytes come from the page cache. What the outputs
// replace, tables or log segments, is removed after that; if an output is damaged they
// are still there, and the merge is tried again. Costs: user and system time of
// BenchmarkRun (four deltas of 25,000 entries of 100 bytes) grew to 1.2 of what it was,
// with pointers in place of values to 1.5; of BenchmarkFlush no difference showed
// (medians of three interleaved runs, in memory, on two busy cores). All of it is time of
// background workers.
//
// # The page cache
//
// Tables stay in the page cache when they are written. They used to be dropped, so
// as not to push out what is asked for; but what is asked for was in the tables
// that they replace, which leave the page cache when they are removed. In
// PUT_HEAVY (1 KiB values, 4 threads, 2 processors) gets waited for the disk: their
// 99th percentile was 10.9 and 12.3 ms, without dropping 0.11 and 0.18 ms. Puts
// had a 99.9th percentile of 4 to 6 ms, without dropping 10 ms.
package compaction
