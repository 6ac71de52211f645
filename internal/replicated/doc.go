// Package replicated joins a store and a Raft group: a [Log] is the replicated log of package
// replica as package engine needs it, so that the store is the state machine of the group.
//
// It knows positions, configurations and tenures of both. It knows neither what a record means
// nor the network: messages of other nodes come to [Log.Deliver] and go to a
// replica.Transport. [Memory] is one for nodes that are in one process, as in tests.
//
// # A member of a cluster
//
// The records are those that a single node logs, with their first number and their commit units
// (engine/entry.go). The leader's coordinators validate, number and propose them; every node
// inserts what is committed, in order, and judges nothing. The Raft log is the commit log:
// there is no second log and no second sync.
//
//	P1. A partition saves, in the same edit as the tables that it flushes, a place in the log
//	    that is not above what is flushed, with the term, the configuration, the number and
//	    the time there. The node continues from the lowest of these places, and skips what is
//	    in tables by number.
//	P2. The log is given up only up to the lowest place that is saved. If entries between that
//	    place and the log are missing, or the log ends before any place that is saved, the node
//	    does not start.
//	P3. A store without any saved place continues from the beginning of the history. The first
//	    voters write that beginning to their empty logs, after the file STORE is durable.
//	P4. The coordinators of a tenure number from the state after the last entry of the log. When
//	    the tenure is over they insert what is committed, answer kv.ErrUncertain for the rest,
//	    and hand on the request ids of what was inserted.
//
// # Reads
//
// Every node answers reads, linearizably: it asks the leader for its commit index, by a round
// that all reads of the moment share, and shows what is applied up to there first. Snapshots
// and scans are of the node that they begin on. Writes, transactions and conditions are for the
// leader; other nodes refuse them with a kv.NotLeaderError, upon which package service/forward
// has the leader perform them.
//
// A read may ask for less (kv.Freshness), and then often costs no message:
//
//	R1. A read that may lag by d sees everything that was acknowledged anywhere more than d
//	    before it began on this node. It is answered at once if a round that began at most d
//	    ago has been answered, and applied here; otherwise it asks for a round like any read.
//	R2. The age of a round counts from before its question was sent, by the clock of this
//	    node alone: the longer of what the monotonic clock and the time of day say. Clocks of
//	    other nodes do not count. A process that is paused finds its rounds older than
//	    they are worth. Only a machine that stands still with both of its clocks, as a virtual one
//	    may, does not notice the time: there R1 holds by that clock.
//	R3. A read that names a version waits until that is visible here. With R1 it needs no
//	    round for that.
//
// The heartbeats of the leader are no such bound: a follower does not know when one was sent. The
// probe of kvd serve asks for a round every second, so that reads that may lag by more than that
// seldom ask for one.
//
// # Time
//
// The time at which keys expire is part of the replicated state. The leader sets it by an entry
// of its own: when its tenure begins, and every second if keys with an expiry were written. It
// takes its own clock, which it has moved to the last time set if that is later. All nodes read at the time that
// was set last, so a key that has expired on one has expired on all, and no failover brings it
// back. A key stays for up to a second longer than it would on a single node. A condition, or a
// transaction, is judged by the time at its place in the log, which readers may not see yet.
//
// # Membership
//
// The configuration that a store keeps with its position says who votes and who learns, where the
// nodes are, the random ids of their data directories, and the next id of a node
// ([Configuration]). A change of the library's configuration carries what it tells of a node, so
// all nodes know the same as of an entry; the beginning is what each was told when it was made.
//
//	G1. An id is given to one node ([Log.Add]): the leader takes the next one on the goroutine of
//	    its loop, when it has applied all configurations before.
//	G2. A node that was removed, or comes with another data directory than it has told, is refused
//	    by every node that knows so ([Log.Judge]). It may have forgotten what it voted for. Until
//	    the log knows the directory, the first one with which it has called counts, on each node.
//	G3. A new node begins where the history begins, with the voters of then. So it gets the log
//	    from there on, and asks for no votes before it has applied the entry that makes it a
//	    voter. It votes for a candidate that has applied that entry, and asks it. If
//	    the history begins with data (see "A store with data"), a new node begins with an empty
//	    log, and gets a checkpoint.
//	G4. A learner that is close to the leader for a second becomes a voter ([Log.Promote]), if the
//	    log knows its data directory and it has called the leader with no other one: what it has
//	    acknowledged counts for a majority from then on. The node that it replaces is removed by
//	    the same joint change.
//
//	G5. A node gets another address for the others by a change that tells it ([Log.Move]). Each node
//	    connects to it there when it has applied that. So the change is made only while the other
//	    voters that answer are a majority, and not by the node itself if it leads. Each node notes
//	    the addresses that it knows (kvd serve writes them to NODE), and finds the others by
//	    them when it starts. A node that was away while another one joined or moved hears that one
//	    nevertheless and answers it, since it is told the address by each call (package peer): so one
//	    member that reaches it, and has the entries, is enough.
//
//	G6. A recovery from a lost majority gives the cluster another incarnation (kv.Incarnation), which
//	    is told with the changes that take the other nodes out. All nodes that join later have it
//	    from the log, and are told it before, as their log begins before the recovery. Nodes and
//	    clients of two incarnations have nothing to do with each other: see packages peer and service.
//
// # Comparison
//
// All nodes should have the same state at the same version. To notice a bug, or memory or a disk
// that changes what it holds, the leader proposes an entry every ten minutes that asks for a
// digest. Each node pins the version of that entry, and computes in the background a hash of
// all keys, values, versions and expiries that can be read at it. Then it tells each other node
// its digest, and hears theirs. Every node concludes by itself:
//
//   - If a majority of the voters has the same digest, any other node is wrong. It stops
//     at once, notes that in the file DIFFERS, with which it does not start again, and keeps
//     its files. The others report it.
//   - While two voters differ and no majority agrees, as of two nodes, it is not known which
//     is right. All report it and go on: to stop all would not help.
//
// A node whose digest comes too late takes part in the next comparison. So does one that applies the
// entry before it has, since its start, caught up with what was committed by then: its tables may have
// later records, or lack keys that have expired since. Request ids are not compared. The
// digests do not go through the log, since only the leader could write them there.
//
// # Disks
//
// A leader hands the leadership over when each write and sync of its log has taken over half a
// second for ten seconds on end, or when its disk is nearly full so that the store refuses
// puts: before the node ends because its log cannot be written. It does so once a minute at most.
// A follower goes on in both cases. While its memtables are full, since flushes are slow or fail, it
// acknowledges entries, votes and answers heartbeats, and applies the entries when there is memory.
// Until then its reads wait, and it does not stand for election.
//
// # Durability
//
// All writes are as durable as sync asks: on the disks of a majority.
//
// # Checkpoints
//
// A node that needs entries which the others have given up, or that joins with an empty log,
// gets a checkpoint of the leader's store (engine.Member.Checkpoint): the tables of all partitions,
// each of which says that it stands at the same position. It continues from there with the log,
// which the leader keeps as long as the checkpoint is on offer; writes that are in the tables already are
// skipped by number, as after a restart, and their request ids are learned.
//
//	P5. The files come into the directory incoming (backup.Receive), where they are synced before
//	    the manifest that makes them count. The store and the log of the node stay as
//	    they are until then.
//	P6. Then the log begins anew at the position, in one write with one sync: the decision. The node
//	    ends, and is started again. When the store is opened, a log that begins at the position
//	    of a complete checkpoint says that its files take the place of the partitions
//	    (backup.Installed). This is repeated until all have moved; only then the partitions are
//	    opened. If the log begins there and the files are gone, the node does not start (P2).
//	P7. A checkpoint that was received and not decided on changes nothing. What is in it and is
//	    the same in a later one is not fetched again; it is removed after ten minutes.
//
// The node installs while it is stopped, and not while it serves, because then a crash has the
// same outcome as the normal way: both go on in Open. It costs the clients of this node their
// connections, and the readers a second or so, of a node that lagged too far to answer anyway.
// kvd serve starts the node again in the same process.
//
// # A store with data
//
// The store of a single node becomes the first member of a cluster, and its only voter, in place
// ([Convert]; engine.ConvertToMember has the steps). Tables, versions, expiry times and the id of the
// store stay as they are. All partitions save the same position, and the log begins there.
//
//	P8. The file NODE is the decision. It is written last, after the tables, the saved positions
//	    and the new log, which lies beside the old one. Without NODE the store is that of a single
//	    node, which deletes the new log when it is opened. With NODE it is a member, which deletes the old
//	    log before its part of the log starts. So a node that has both logs has given no vote.
//	P9. The new log takes over the newest records of the old one: three segments of them at most,
//	    which is as far as a single node keeps request ids. All are in tables, and skipped by
//	    number. So a write that is sent again is recognised, or gets kv.ErrUncertain.
//	P10. The log begins at replica.StateIndex, which is above the index at which an empty history
//	    begins, and the configuration names no first voters. So no node goes on with this log
//	    without the data: one that joins gets a checkpoint.
//
// There is no way back in place; a backup of a node is the store of a single node.
//
// # Backups
//
// A checkpoint for a backup (engine.Engine.Checkpoint) is another one: the store of a single node.
// Its manifests have no position, and its log, in the format of package wal, is made of the entries
// that the tables lack. So a backup can be restored where there is no cluster, and is never taken
// for a node: that would vote under an id whose votes it does not know.
//
// # Not here yet
//
//   - Opening for reading only is refused on a member, and so is an archive. An archive is made of the
//     frames of a single node's log (backup/doc.go): a piece continues the one before by segment and
//     offset, and must agree, byte by byte, with the last segment of a backup. A member has no such
//     log. Each backup of it gets one that is made for that backup alone, so a later piece would
//     continue none of them. It would need a log in that format which a member writes as it applies
//     entries and keeps, with the same bytes after a restart, from which backups are made too, and
//     a rule for a member that has installed a checkpoint, and so has never seen the entries in
//     between. So the refusal is kept; backups often are the substitute, as each copies only what
//     is new.
//   - After a restart a node knows the request ids of the last 30 s or three segments, unless it
//     has flushed nothing since. For older ones that are sent again a leader answers
//     kv.ErrUncertain.
//   - A disk without any space, or a file system that becomes read-only, ends a member when
//     its log cannot be written.
//   - If the machine's clock of a new leader is years ahead, keys expire at once. (If it is
//     behind, the time goes at half the speed until that has caught up.)
//   - A scrub leaves out the segment of the log that is written to.
//   - A store so large that its digest takes over an hour, at a
//     twentieth of a processor, is not compared.
//   - Operations in frames are not forwarded to the leader, and a transaction that has read on
//     another node than the leader is refused once the leader's memtables do not reach back
//     to its version. Snapshots cannot lag.
package replicated
