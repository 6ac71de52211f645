// Package mergeiter composes iterators: many sorted sources into one ([New]), all
// keys into those of a range ([Bounded]), all versions in a range into batches of
// what a reader sees ([Visible]). In other texts: merging iterator, heap iterator,
// user iterator, k-way merge.
//
// It knows order and versions. It does not know memtables, files, or what a
// compaction may drop. A scan uses Visible; flush and compaction use New, because
// they keep versions that a snapshot may still see. All walk both ways.
//
// I1. An error of a source ends everything that reads it, for good: Valid is false
// and Err is that error. It is never taken for the end of the source.
// I2. New drops nothing: it returns every entry of every source.
// I3. New and Bounded do not copy entries: what Entry lends belongs to the source.
// Visible copies only what it shows, and at most once.
// I4. A backward walk is exactly the reverse of a forward one, ties included.
//
// # Cost
//
// All merges are tournaments in a [Tree], which orders sources by one word of each. With
// k sources a step of New takes one step of one source and at most ceil(log2(k)) matches,
// of which most compare two words; a binary heap takes up to twice as many. The words are
// taken after the prefix that the current keys have in common, so a long prefix does not
// make them equal. A single source is returned as it is. Where there are range tombstones
// Visible searches them once for each key.
//
// Visible does not go from entry to entry. The source with the first key fills the
// batch by itself (scanbatch.Filler) up to the key of the next source, because until there
// no other source has a version of any key: one call for all entries of a single run,
// and for some hundred where a large run meets a small one. Only keys of which several
// sources have versions are merged entry by entry.
package mergeiter
