// Package descriptor defines the identity and the directory layout of a store: the files
// STORE, CLOCK and NODE, and the names in a data directory. The engine writes them, and
// internal/inspect reads them.
//
// # Names in a data directory
//
//	STORE            the fixed properties of the store, see below
//	CLOCK            a time that its clock has not passed, see below; exists once the
//	                 store has accepted a key that expires
//	NODE             which node of which cluster the store is, see below; a store without it
//	                 is no node
//	DIFFERS          says, for people, why a node of a cluster must not serve any more: see
//	                 CheckSame
//	BALLAST          reserves space for when the disk is full; its bytes mean nothing, and
//	                 it may be missing
//	LOCK             held by the process that has the store open, with its pid; the
//	                 directory itself is locked as well: see Lock
//	wal/             the commit log: see package wal, and raftlog for that of a node. A store that
//	                 has segments of both was becoming a node: see HasReplicatedLog
//	incoming/        a version of the store that another node sends: see backup.Receive; it
//	                 may take the place of the partitions when the store is opened
//	p-0000/ ...      the partitions: see package manifest
//
// # STORE
//
// Numbers are little-endian.
//
//	offset  bytes
//	0       8      magic "kvdstore"
//	8       4      format version, 1: what a kvd needs to open the store, see package formats
//	12      8      store id, random
//	20      4      partitions
//	24      16     name of the key hash, padded with zeros
//	40      4      CRC32C of bytes 0 to 39
//
// # CLOCK
//
//	offset  bytes
//	0       8      magic "kvdclock"
//	8       4      format version, 2
//	12      8      store id, as in STORE
//	20      8      the bound, in Unix milliseconds
//	28      16     boot of the machine, as Linux names it; zeros: unknown
//	44      8      nanoseconds since the boot, suspended time included, at the moment when
//	52      8      ... the store's clock was at this time, in Unix microseconds
//	60      8      ... and the machine's clock at this one
//	68      4      CRC32C of bytes 0 to 67
//
// With an unknown boot, bytes 44 to 67 are zeros. Format 1 has the checksum at 28 and
// ends there.
//
// # NODE
//
//	offset  bytes
//	0       8      magic "kvd.node"
//	8       4      format version, 1, or 2 if the cluster was recovered from a lost majority
//	12      8      store id, as in STORE
//	20      8      cluster id, random
//	28      8      node id
//	36      4      number of nodes that it knows
//	40      4      version 2: how often the cluster was recovered
//	44      8      ... and the random id of the last recovery
//	40, 52         nodes, in the order of their ids: u64 id | u16 length | address
//	        4      CRC32C of all bytes before
//
// NODE is written when the store and its part of the replicated log are complete. A store
// whose NODE is missing or belongs to another store takes part in no cluster: it must not vote
// under an id whose votes it has forgotten. A store that was a node never becomes another one. When
// the store of a single node becomes a node, NODE is the decision: see engine.ConvertToMember.
//
// The first twelve bytes of all three keep their meaning in every format version.
package descriptor
