// Package batcher turns many callers into few batches: what is asked for in the
// same moment is served together. In other texts: group commit, write groups,
// flat combining, request coalescing.
//
// It knows items, their operations and bytes, and when to cut. It does not know
// keys, logs or files: what serving a batch means is the caller's function.
//
// # Two ways to a batch
//
// Writes go through an [Inbox]: a bounded queue in front of the one orchestrator
// of a partition, which takes all that has queued while its last batch was being
// logged. Reads go through a [Combiner]: there is no goroutine at all while the
// partition is idle. A caller that finds fewer than the allowed runners at work
// serves itself at once; the others queue, and the first of them is made leader
// of all when a runner is done (flat combining: Hendler, Incze, Shavit and
// Tzafrir, SPAA 2010). A leader serves exactly one batch, its own included, so
// nobody works for others for long.
//
// Both batch naturally: the batch that forms is the one that arrived while the
// last one was in progress, so a lone caller never waits and the batch grows with
// the load. No timer runs by default. [Policy] can set a linger and a cap of
// operations, because the experiment that this design comes from (batches of 1,
// 2, 4 ... 32 keys or half a millisecond; lakeFS, "Micro-batching", 2020) must be
// repeatable.
//
// # Promises
//
//  1. Every item is served exactly once or refused with an error, never both.
//  2. Items are served in the order in which they were accepted.
//  3. A queue never holds more than its bound in bytes, but for one item that is
//     larger than the bound by itself.
//  4. A caller that gives up while its item is queued takes it out of the queue;
//     its batch-mates do not notice.
package batcher
