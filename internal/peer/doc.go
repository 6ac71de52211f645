// Package peer carries what the nodes of a cluster say to each other: the messages of the
// consensus, on a listener of its own. In other texts: Raft transport.
//
// It knows nodes, addresses and certificates. Of a message it knows from which node to which
// it goes, and whether it is short or long. [Network] implements replica.Transport, and
// delivers to a [Receiver], which is a replica.Loop.
//
//	N1. Send never blocks. What cannot be sent soon is dropped and counted; the consensus
//	    sends again what counts. Nothing waits for a node that is not connected.
//	N2. A message reaches the Receiver only if its sender is the node whose stream it comes
//	    by, a member of this cluster or a new one (see "Nodes that missed a change"), and means this
//	    node and this group. A member may pass on the reads of another one.
//	N3. The bytes of a stranger cost bounded memory: 64 connections of 1 MiB each, with 64 calls,
//	    which end if they are idle, and make room for newer ones. They keep no member out, unless
//	    the stranger connects so fast that a member cannot say which node it is in between. Before
//	    a call is known to be a member's, nothing of it is decoded but a Hello of at most 256 bytes.
//	    New members are 16 at most, and each costs what a member costs.
//	N4. Close ends all goroutines.
//
// # Lanes
//
// A node calls every other node twice, by connections of their own: one stream carries the
// short messages (heartbeats, votes, reads, acknowledgements), the other one the entries. So
// a heartbeat does not wait until megabytes have left. Each stream carries messages one way,
// in order; the answers come by the streams of the other node. A message above 1 MiB is sent
// in parts.
//
// A queue takes 4 MiB of short messages, or 64 MiB of entries, which is what a leader sends
// ahead of acknowledgements; a single longer message is taken alone. The entries are those
// that the log keeps in memory too.
//
// A stream that ends is made again after 50 ms, growing to 2 s while that fails, each time
// between half and one and a half times as long, or at once when the other node calls: a node that
// has started again gets its streams without waiting for the pauses of the others. If the other
// node is silent for 10 s it is asked whether it is there, and has 5 s to answer.
//
// If a stream has ended and an attempt to make another one finds no process at the address, the
// Receiver is told once that the node seems to be gone: the machine of a process that has ended
// refuses its connections at once, long before its silence tells.
//
// # Identity
//
// Each call begins with a Hello: version of the protocol, cluster, the ids of both nodes, and
// how the store of the caller is divided into partitions: records name partitions, so nodes
// that differ there would come to different states. The other node answers with its own. If
// anything differs the call is refused with the reason, which both nodes report; the one that
// refuses does so once a minute. A call from a node that is neither a member nor a new one is refused.
//
// With TLS, which is mutual, the certificate of a node has its cluster and id as its only URI
// (certificate.Node), and has to agree with the Hello. Host names do not matter. Without TLS
// a Hello is believed; then all addresses have to be those of loopback.
//
// A Hello also tells the voters with which the cluster began. A node that was made with others by
// mistake has a history of its own: it is refused before it can be told that it was removed, and
// cannot tell others that they were ([Network.SetFirst]).
//
// A Hello also tells the incarnation of the cluster (kv.Incarnation): a node that was recovered from a
// lost majority refuses those that were not, or were by themselves, and they refuse it
// ([Network.SetIncarnation]).
//
// A Hello also tells the random id of the data directory. A node that was removed, or that
// comes with another directory than it had, is refused for good, and learns that
// ([Network.Judge], [ErrExpelled]). Nor is anything sent to a node that answers with another one.
//
// # Nodes that missed a change
//
// Raft takes messages of a leader that the follower's configuration does not have yet: the entry that
// adds it comes from that leader alone. So this package has to, too. A node that begins a stream tells
// its own address, as of an entry of the log (its configuration is that of this entry). A node that has
// not come so far takes that for newer than what its own log says:
//
//   - A caller with an id that the configuration does not reach yet (from Next on) becomes a new
//     member: it is heard, answered at the address that it tells, and may ask what members may. It is
//     no member any more when its streams end, or when the configuration reaches its id without it.
//     It has to pass all the checks of a member. An id below Next that is not in the configuration
//     was removed, and is refused for good.
//   - A member that tells another address is called there first, and at the one of the configuration
//     if it is not there, in turn. Once the configuration is as new, that counts alone.
//
// Nothing of that is written to a disk: the node that is called learns it again with the next call. A
// node whose address changes makes its streams anew, so that the others hear of it. When the address
// of a member changes, the streams that come from it go on. A node of an earlier version tells no
// address; nor does one whose address makes the Hello longer than 256 bytes.
//
// With TLS only the owner of a certificate of the cluster with that id can be a new member, or tell
// another address of a node; and what answers at an address has to have the certificate of the node.
// So certificates for ids that were not given yet are to be kept as those of members: their owner can
// vote and lead. Without TLS the caller is believed, as in all else, and addresses are of loopback.
//
// # Questions
//
// By the connection of its short messages a node also asks another one, such as how far that has
// come ([Network.Ask], [Network.Answer]).
//
// # Forwarded writes
//
// A node that does not lead has the one that does perform writes of its own clients
// ([Network.Forward], [Network.ServeForwards]), by a connection of its own: up to 64 at a time,
// each a call with the deadline of the client. The write begins when all of it has come, so a
// call that breaks before has done nothing; one that breaks later has an unknown outcome. What
// the write is, and who may ask for it, is for package service/forward. A member is trusted with
// that: it may lead itself, and then nothing judges what it proposes.
//
// # Files
//
// A node fetches the files of a checkpoint of another one by a third connection
// ([Network.Files]), for backup.Receive: the list, then one file after the other, of which
// nothing is sent if the caller has it. Checksums are those of backup. The sender paces the bytes
// (replicated.Config.TransferRate), serves one node at a time, and ends a transfer in which the other node has
// taken nothing for a minute. Which checkpoint to fetch says a message of the consensus: see
// replica.Checkpoints.
//
// # Digests
//
// Nodes compare their states by calls of their own ([Network.Compare]), on the connection of the
// short messages.
package peer
