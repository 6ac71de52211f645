// Package forward lets a node of a cluster that does not lead have the writes of its clients
// performed by the node that does: for clients that know one address alone.
//
// A call of gRPC that the store refuses with a kv.NotLeaderError, which means that nothing was done,
// is sent to the node that leads ([Do]), by the connections between the nodes. That node performs
// it as a request of the same client ([Receiver]) and sends the answer back. It does not forward
// in its turn, so there are no loops: if it does not lead either, the called node waits for a while until
// a node does, be it itself (service.ErrLeads), and then tells the client NOT_LEADER.
//
//	F1. The called node judges the request before: limits, and the rights to all that it touches.
//	    It sends the rights of the client along, and the node that leads judges the request by
//	    them once more, with the code that judges all requests. So what is forwarded can do
//	    no more than its client may, whatever becomes of a request with several parts.
//	F2. Of the other node it is believed which rights the client has. That gives a member no
//	    power that it lacks: it may become the leader, and then nothing judges what it proposes.
//	F3. Quotas, sign-ins and refusals are counted and logged where the client called. There too
//	    a previous value counts once it is there, so that each call under way may exceed a quota
//	    of bytes by one value.
//	F4. Request ids, time to live, durability and conditions are those of the request, which is
//	    sent as it is. The deadline holds on both nodes.
//	F5. If the way breaks once the whole request was sent, the outcome is unknown, and the client
//	    is told so (OUTCOME_UNKNOWN). Otherwise nothing was done. The way also breaks half a second after
//	    another node has begun to lead: the former leader may be paused, or cut off.
//	F6. On both nodes the request is one of the calls that are served at a time, and its bytes,
//	    those of the answer too, are charged to the memory for requests. On the node that leads the
//	    requests of another node take turns with the connections of clients, as one of them.
//	F7. A transaction that has read on the called node commits: its version means the same on
//	    all nodes, and the called node says that it gave it out since its store was opened. Without
//	    a snapshot on the node that leads it is refused (VERSION_GONE) once the memtables
//	    there do not reach back to the version.
//
// A client that follows the leader itself says so, by kvdpb.FollowsLeaderHeader, and is told which
// node leads. So is one whose operation came in a frame.
package forward
