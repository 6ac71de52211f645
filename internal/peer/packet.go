package peer

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/raftlog"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

const (
	// packetBytes bounds the messages of a packet, and the parts of a long one.
	packetBytes = 1 << 20
	// packetOverhead is above what the other fields of a packet take, of which those of many
	// short messages take most.
	packetOverhead = 1 << 20
	// maxMessageBytes bounds one message: that of the longest entry.
	maxMessageBytes = raftlog.MaxEntryBytes + 1<<20
)

// packets calls send with packets that carry messages. It stops at the first error.
func packets(group uint32, messages []*pb.Message, send func(*peerpb.Packet) error) error {
	next, bytes := &peerpb.Packet{Group: group}, 0
	flush := func() error {
		if len(next.Messages) == 0 {
			return nil
		}
		p := next
		next, bytes = &peerpb.Packet{Group: group}, 0
		return send(p)
	}
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			return fmt.Errorf("encode a message to node %d: %w", m.GetTo(), err)
		}
		if bytes += len(b); bytes > packetBytes {
			if err := flush(); err != nil {
				return err
			}
			bytes = len(b)
		}
		if len(b) <= packetBytes {
			next.Messages = append(next.Messages, b)
			continue
		}
		if err := parts(group, b, send); err != nil {
			return err
		}
		bytes = 0
	}
	return flush()
}

// parts sends a long message in parts.
func parts(group uint32, b []byte, send func(*peerpb.Packet) error) error {
	for len(b) > 0 {
		n := min(len(b), packetBytes)
		if err := send(&peerpb.Packet{Group: group, Part: b[:n], Last: n == len(b)}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// receiver makes messages of the packets of one stream.
type receiver struct {
	group    uint32
	from, to uint64
	// forwards says whether a read of that node may come from the sender, which then passes it on.
	forwards func(node uint64) bool
	part     []byte
}

// take calls deliver with the messages that a packet completes.
//
// Errors: what a node of this version never sends; the stream has to end.
func (r *receiver) take(p *peerpb.Packet, deliver func(*pb.Message)) error {
	switch {
	case p.GetGroup() != r.group:
		return fmt.Errorf("a packet of group %d, this node has group %d", p.GetGroup(), r.group)
	case len(r.part) > 0 && len(p.GetPart()) == 0:
		return fmt.Errorf("a packet has no part, although the message before is not whole")
	case len(p.GetPart()) > 0 && len(p.GetMessages()) > 0:
		return fmt.Errorf("a packet has both a part and %d messages", len(p.GetMessages()))
	case len(r.part)+len(p.GetPart()) > maxMessageBytes:
		return fmt.Errorf("a message has more than %d bytes", maxMessageBytes)
	}
	for _, b := range p.GetMessages() {
		if err := r.decode(b, deliver); err != nil {
			return err
		}
	}
	r.part = append(r.part, p.GetPart()...)
	if !p.GetLast() {
		return nil
	}
	whole := r.part
	r.part = nil
	return r.decode(whole, deliver)
}

func (r *receiver) decode(b []byte, deliver func(*pb.Message)) error {
	m := &pb.Message{}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("a message of %d bytes that cannot be read: %w", len(b), err)
	}
	if m.GetType() == pb.MsgReadIndex && m.GetFrom() == r.to {
		return nil // this node led no more when it asked, and leads now; it has asked again by itself
	}
	own := m.GetFrom() == r.from || m.GetType() == pb.MsgReadIndex && r.forwards(m.GetFrom())
	if !own || m.GetTo() != r.to {
		return fmt.Errorf("a message from node %d to node %d, in the stream from node %d to node %d", m.GetFrom(), m.GetTo(), r.from, r.to)
	}
	deliver(m)
	return nil
}
