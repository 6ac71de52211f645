// Package history checks whether a store is strictly serializable: it takes what the
// clients of a run recorded, and looks for an answer that no such store could have
// given.
//
// The checker trusts the store only for the order of writes: every answer carries a
// version, and the versions of all writes define the order in which they were applied.
// The checker replays the writes in that order on a map, and compares every answer with
// the map at the answer's version. That takes the time of a sort, whereas finding an
// order is NP-hard, so it can check runs of a million transactions. (The robustness
// tests of etcd, which replay by revision, use the same idea.)
//
//	R1. No two writes have the same version.
//	R2. A read or a scan returns exactly what the map holds at its read version: a scan
//	    that misses a key is wrong too.
//	R3. What a transaction read at its read version still holds immediately before the
//	    transaction's own version: no other write changed it in between. Lost
//	    updates, write skew and phantoms violate this. A condition counts as a read at
//	    that point.
//	R4. The order agrees with real time. A write has a later version than every
//	    write that was acknowledged, and than every version that a client had seen,
//	    before the write was called. A snapshot is not older than these.
//	R5. A read of one key reports the version of its partition, so R4 applies to it per
//	    key: it does not return less of its key than was acknowledged, or seen by another
//	    client, before it was called. A client that has seen one key of a write has
//	    seen all of them.
//
// A write whose outcome its client never learned was applied if a client read one of
// its values, since no two writes put the same value. Otherwise it counts as not
// applied, but for a condition that its key is present, which shows no value: one such write that
// was called before may have put the key, between two known writes of it and nowhere else. A
// client should therefore not stop before it knows: Client sends a write with a request id again
// until the store reports its outcome, and R2 finds a write that was applied twice.
//
// The package also contains such a Client, which sends random operations to a Store and
// records the answers. It is for tests alone.
package history
