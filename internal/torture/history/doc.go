// Package history judges whether a store is strictly serializable: it takes what
// the clients of a run wrote down, and looks for an answer that no such store
// could have given.
//
// The judge believes the store in one thing, the order: each answer carries a
// version, and the versions of all writes are the order in which they are said to
// have happened. It replays them, one after the other, on a map, and holds every
// answer against the map at its version. That takes the time of a sort, where to
// find an order without help is NP-hard, and so it looks at all of a million
// transactions. (The idea is that of the robustness tests of etcd, which replay
// by revision.)
//
//	R1. No two writes have one version.
//	R2. What a read or a scan saw is what the map holds at its read version, no
//	    more and no less: a scan that missed a key is wrong too.
//	R3. What a transaction read at its read version, it would also have read just
//	    before its own version: nobody changed it in between. This is what lost
//	    updates, write skew and phantoms break. A condition is a read of that moment.
//	R4. The order is that of real time. A write has a later version than every
//	    write that had been acknowledged, and every version that anybody had seen,
//	    before it was called; a snapshot has no earlier one.
//	R5. A read of one key says at which version its own partition was, and so R4
//	    holds for it key by key: it does not see less of its key than was
//	    acknowledged, or seen by others, before it was called. Who has seen one key
//	    of a write has seen all of them.
//
// A write whose outcome its client never learnt has happened if anybody saw a
// value of it, since no two writes put the same value. If nobody did, it counts as
// not having happened. A client should therefore not rest before it knows: Client
// sends a named write again until the store says what became of it, and R2 finds a
// write that took effect twice.
//
// The package also has such a Client, which asks a Store at random and writes
// down what it saw. It is for tests alone.
package history
