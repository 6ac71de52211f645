// Package batcher turns many concurrent callers into few batches. In other texts: group
// commit, write groups, flat combining, request coalescing.
//
// It knows items, their operations and bytes, and when to cut a batch. It does not know
// keys, logs or files: the caller's function serves a batch.
//
// # Two kinds of batching
//
// Writes go through an [Inbox], a bounded queue in front of the goroutine that leads one
// partition (package commit). The leader takes all that has queued while its last batch was
// being logged.
//
// Reads go through a [Combiner], which uses no goroutine of its own. A caller that
// finds fewer than the allowed runners active serves its own item at once. Other
// callers queue; when a runner ends, the first of them becomes the leader of the next
// batch (flat combining: Hendler, Incze, Shavit and Tzafrir, SPAA 2010). A leader
// serves exactly one batch, which includes its own item, so no caller works for others
// for long. While batches wait for a disk, the Combiner's owner allows more runners, and
// smaller batches.
//
// Both batch naturally: a batch is what arrived while the previous one was in progress,
// so a lone caller never waits, and the batch grows with the load. No timer runs by
// default. [Policy] can set a linger and a cap on operations, so that the experiment
// that this design comes from (batches of 1, 2, 4 ... 32 keys or half a millisecond;
// lakeFS, "Micro-batching", 2020) can be repeated.
//
// # Promises
//
//  1. Every item is served exactly once or refused with an error, never both.
//  2. Items are served in the order in which they were accepted.
//  3. A queue never holds more bytes than its bound, except for a single item that is
//     larger than the bound.
//  4. A caller that gives up while its item is queued removes it from the queue. This does
//     not affect the other callers of the batch.
package batcher
