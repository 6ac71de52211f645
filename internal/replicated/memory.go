package replicated

import (
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/replica"
)

// Memory is a network in memory, for nodes of a cluster that are in one process. Safe for
// concurrent use.
type Memory struct {
	mu       sync.Mutex
	logs     map[uint64]*Log // of the nodes that take and send messages, by id
	isolated map[uint64]bool
}

// NewMemory returns a network without nodes.
func NewMemory() *Memory { return &Memory{logs: map[uint64]*Log{}, isolated: map[uint64]bool{}} }

// Of returns what sends the messages of a node.
func (m *Memory) Of(node uint64) replica.Transport { return memoryNode{m, node} }

// Join lets a node take and send messages; before, and after Join with nil, they are lost.
func (m *Memory) Join(node uint64, l *Log) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[node] = l
}

// Isolate cuts a node off from the others, or no longer.
func (m *Memory) Isolate(node uint64, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isolated[node] = cut
}

// Connects reports whether a message of one node would come to another.
func (m *Memory) Connects(from, to uint64) bool { return m.way(from, to) != nil }

// way returns the log that a message is for, nil if it is lost.
func (m *Memory) way(from, to uint64) *Log {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logs[from] == nil || m.isolated[from] || m.isolated[to] {
		return nil
	}
	return m.logs[to]
}

type memoryNode struct {
	network *Memory
	id      uint64
}

// Send implements replica.Transport.
func (n memoryNode) Send(messages []*pb.Message) {
	for _, m := range messages {
		if to := n.network.way(n.id, m.GetTo()); to != nil {
			to.Deliver(proto.Clone(m).(*pb.Message))
		}
	}
}
