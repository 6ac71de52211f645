// Package replica is one node's part in a Raft group: it replicates records, and hands those
// that the group has committed to a state machine, in the same order on every node. In other
// texts: replicated state machine, Raft node.
//
// It knows entries, terms and durability. It does not know what a record means, nor the
// network. The consensus is that of etcd's library (go.etcd.io/raft/v3); entries and votes are
// in package raftlog, the network in package peer.
//
// [Core] has no goroutine, no clock and no randomness of its own. Ticks, messages, proposals
// and reads come in as calls, and [Core.Process] does what follows from them. [Loop] is a
// goroutine that calls a Core. (The library draws the election timeouts from crypto/rand;
// testing/cryptotest.SetGlobalRandom makes them repeatable in tests.)
//
// # A turn
//
// Process takes turns until nothing is left to do. In a turn it
//
//  1. sends new entries to the other nodes, if this one leads,
//  2. writes the term, the vote and new entries to the log, and syncs it if there are any or
//     the term or the vote has changed,
//  3. sends the other messages.
//
// When no turn is left it applies committed entries, and answers proposals and reads. One Process
// applies no more than some ten milliseconds' worth, and nothing while the state machine has no
// room, such as memory ([StateMachine].Room). It then says that more is left (Output.More), and the
// next one goes on. So a node answers heartbeats, votes, and acknowledges entries, however far its
// state machine lags.
//
// A node that does not lead and has committed entries to apply asks for no votes: it could not
// begin a tenure, perhaps never. It forgets a leader that was silent for 10 ticks, and votes for
// others, like any follower. No tenure begins, and no proposal is reported as uncertain, before
// all that is known to be committed is applied.
//
// C1. No message leaves before what it depends on is synced: a vote, or the acknowledgement of
// an entry. The entries of a leader depend on its vote alone: the other nodes sync them while it
// does, and it counts itself among those that have an entry after its own sync (Ongaro,
// "Consensus: Bridging Theory and Practice", 10.2.1). An entry is synced in this node's log
// before its state machine sees it.
// C2. After a failed write or sync, an entry that cannot be read, an error of the state
// machine, or a state that the library finds impossible, the Core does nothing more. A new
// one must be made from the disk.
// C3. The state machines of all nodes see the same records with the same indexes, in order.
// None sees a record twice, except after a restart, when it sees those after its [Position]
// again.
//
// # Records
//
// The leader validates and numbers a record before it proposes it, and no node judges it
// again. So a record is good only in the term in which it was numbered. The entry carries that
// term beside its own, and every node skips an entry whose two terms differ. The data of an
// entry is
//
//	0  1  format version: 1
//	1  8  term in which the record was numbered, little-endian
//	9     record
//
// An entry without data only begins a term. A node that meets another format version stops: if
// it skipped the record, its state would differ from that of the others.
//
// # Tenures
//
// A tenure is a time in which a node takes proposals, one after the other without a gap. A
// later record may depend on an earlier one; so if one is not taken, the tenure is over, and
// no later record of it is taken. A tenure lies within one term; a term may have several.
//
//   - A tenure begins when the node leads, has applied every entry of its log, the first of its
//     own term among them, and no transfer is under way. Records are numbered from the state
//     that then holds.
//   - It ends when the node no longer leads, or begins to transfer the leadership.
//
// A transfer leaves no proposal uncertain. The proposer hears of the end of the tenure before the next
// wait for the disk, what it has proposed by then is still taken, and the other node is told to lead
// only when the whole log is committed: a round trip after the last proposal. The library alone
// would tell it as soon as it has the last entry, which with four voters or more is before a majority
// has acknowledged that. If the entries are not committed within 10 ticks, the transfer is given up.
//
// # Outcomes
//
// Every proposal ends once, in the order of the proposals:
//
//	Committed  its entry was committed and applied here
//	Dropped    no node has applied it or ever will: its tenure was over, or its entry was
//	           replaced before it left the memory of this node, or by a committed entry with
//	           the same index
//	Uncertain  the term ended, or the Core, after the entry was in the log of this node. A
//	           later leader commits it or not
//
// # Reads
//
// A read is linearizable: when it is answered, the state machine has applied everything that
// was acknowledged anywhere before the read began. Any node can serve it. The reads that have
// come by the beginning of a round share it: the leader confirms by heartbeats that it still
// leads, and tells its commit index; the reads are answered when this node has applied up to
// that.
//
// The context of a round is {node, boot, counter} and is used once, so that a late answer to an
// earlier round, or to one before a restart, answers no later read. A round without an answer
// is asked for again, with a fresh context, as soon as this node knows a leader that it has not
// asked, and after 2 ticks. An answer to any of the contexts of a round is good for it, as its
// reads had come before the first of them.
//
// # Restart
//
// The state machine knows durably up to which entry it has applied, and with it the term and
// the configuration that hold there ([Position]). [New] compares that with the log. It refuses
// to start if entries between the two are missing, if the log ends before what the state
// machine has, or if the two are not of the same history. Parts of the state machine may have
// applied more: the log must reach the newest place that one of them has saved, or it has lost
// entries that it acknowledged. The commit index is not synced by
// itself; it is at least the index of the Position. It is never behind in another way: with an entry it is
// durable as the node knew it then. A node has a second change of the configuration only when it knows the
// first one to be committed. The library asks for no votes before it has applied what it knows to
// be committed, so after a restart a node campaigns under a configuration at most one change old.
//
// # A leader that is missed
//
// A follower that has heard nothing of its leader for 10 ticks, and up to 10 more at random, asks for
// votes. With two followers the first one does so after 12.9 ticks in the mean, of which the last
// message and the first tick take half a tick each at most; the votes and the first entry of the new
// term need three messages there and back, and two syncs. So a leader that is silent is replaced in 1
// to 2 seconds, most of which is that silence.
//
// A shorter time was not chosen. A leader is silent while it waits for its disk or for a processor, and
// a second of that is common: etcd too waits for one (its ticks are as here), and so does Consul. A
// leader that is replaced because it was slow makes a slow group slower.
//
// But if only the process of the leader has ended, its machine says so at once: it closes the
// connections and refuses new ones. The network tells that ([Core.Gone]), and a follower that then
// hears nothing for 2 ticks, in each of which a leader sends a heartbeat, forgets the leader. It
// grants votes from then on, and asks for them itself when it is its turn: in the third tick if its id
// is the lowest, and 2 ticks later for each voter before it, so that the votes are not split. So such
// a leader is replaced in three to four tenths of a second, and nothing is waited for at random.
//
//   - Nothing depends on whether the hint is true. Any node may ask for votes at any time; the
//     votes, the terms and the logs decide, and reads are confirmed by a majority, not by a lease.
//   - It disturbs no leader that a majority hears. A follower that still hears it, or heard of it
//     within 10 ticks and had no hint, ignores the request for a preliminary vote (PreVote and
//     CheckQuorum: raft.go, inLease), so one follower alone changes no term. Hence the follower
//     that is asked has to forget the leader too: to ask sooner would not be enough. RawNode.ForgetLeader
//     is made for that.
//   - A connection that is cut and made again gives no hint, and a heartbeat takes a hint back.
//   - A hint is used once. If no leader follows from it, silence counts as before.
//   - A machine that loses power or its network refuses nothing. Then silence alone tells.
//
// A leader whose heartbeats come through and whose entries do not, as on a path that loses long
// messages, would lead for ever and commit nothing. If it has entries that are not committed, and for
// 300 ticks no other node has acknowledged one, it neither sends nor hears heartbeats: it steps down
// after an election timeout, and the others elect a leader. It goes on if those that answer are no
// majority without it, while a node fetches a checkpoint, and while a change of the configuration is
// applied in part.
//
// # Configuration
//
// The voters elect leaders and commit entries; a learner gets all entries and does neither. A
// node is added as a learner, and promoted when it has caught up. Changes are made together by
// joint consensus, one set after the other ([Core.Reconfigure]). A configuration is effective on
// a node when that has applied it, and a change has succeeded when the applied configuration
// says so. The id of a node is never used again: a node that has lost its log, and comes
// back under its id, would vote a second time in a term. A change may tell the state machines
// something of a node, such as its address: every node is told the same at the same index.
//
// A leader does not take its own vote: it transfers the leadership first. Otherwise its log
// could be longer than all others, so that it would refuse its vote to every candidate, and
// could not be one itself. A leader that was elected with the change in its log applies it
// before its first tenure, so another node has all that it has.
//
// The library ignores the order of a leader to campaign while a configuration change is
// committed and not applied. The Core keeps that order until all is applied, for 10 ticks: then the
// leader has given the transfer up.
//
// # A majority that is lost
//
// A group that has lost a majority of its voters for ever elects no leader any more. An operator
// can make one node that is left the only voter ([PlanRecovery]): everything in its log then
// counts as committed, and entries after it take the other nodes out, one by one. They are durable
// before the commit index counts them, so a recovery that is interrupted has changed nothing that is
// committed, and can be repeated. This breaks the
// promises of the consensus: what the lost nodes had acknowledged, and is not in that log, is
// gone. The changes tell the state machines that it is a recovery, and which: two nodes that were both
// recovered have two histories.
//
// # Checkpoints
//
// A leader keeps what a follower lacks until that is too much (see [Core.Compact]). Then the
// library wants to send a snapshot; the Core sends the offer of a checkpoint of the state
// machine: its Position and a token, by which the follower fetches it outside of the
// consensus ([Checkpoints]). The follower goes on to answer heartbeats and to vote meanwhile.
//
//   - A checkpoint is offered only if all nodes of the configuration are in its own, and the
//     log goes on from it.
//   - A node takes an offer only if its log has not the entry of the Position. Otherwise the
//     entries up to there are the same, and those after it may count for a majority.
//   - When the checkpoint is durable on the follower, the log begins anew at its Position, in one
//     write and sync with the commit index; the term and the vote stay ([Core.Install]). With
//     that the Core ends, before it sends anything else: the state machine takes the place of
//     the old one while no Core runs, and [New] checks that it fits the log.
//   - A leader is told how a transfer has ended ([Core.Sent]). An offer that is taken up by no
//     node within 2 seconds counts as lost, and is made again.
//
// The library never installs a snapshot, so no turn has one. That the node has to start again is
// what makes it simple: there is one way from the disk to a running Core, and no moment at
// which a part of the node has the new state and another part the old one.
package replica
