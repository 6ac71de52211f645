package peer

import (
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
)

// queue holds messages until they are sent. It takes none while it is closed: a message that
// waits for long is worth nothing.
type queue struct {
	limit int64
	wake  chan struct{} // holds a token if there is something to take

	mu       sync.Mutex
	open     bool
	messages []*pb.Message
	bytes    int64 // of those, and of those taken and not sent
	dropped  uint64
}

func newQueue(limit int64) *queue { return &queue{limit: limit, wake: make(chan struct{}, 1)} }

// messageBytes is about what a message takes on the network and in memory. It is cheap: the
// loop of the consensus calls it.
func messageBytes(m *pb.Message) int64 {
	n := int64(64 + len(m.GetContext()))
	for _, e := range m.GetEntries() {
		n += int64(32 + len(e.GetData()))
	}
	return n
}

// put adds a message, or drops it.
func (q *queue) put(m *pb.Message) {
	size := messageBytes(m)
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open || q.bytes > 0 && q.bytes+size > q.limit {
		q.dropped++
		return
	}
	q.messages = append(q.messages, m)
	q.bytes += size
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns what waits. The caller calls sent with the bytes.
func (q *queue) take() (messages []*pb.Message, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	messages, q.messages = q.messages, nil
	for _, m := range messages {
		bytes += messageBytes(m)
	}
	return messages, bytes
}

// sent says that messages of so many bytes are no longer here.
func (q *queue) sent(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= bytes
}

// setOpen opens or closes the queue. What waits in one that closes is dropped.
func (q *queue) setOpen(open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = open
	for _, m := range q.messages {
		q.bytes -= messageBytes(m)
	}
	q.dropped += uint64(len(q.messages))
	q.messages = nil
}

// state returns whether the queue is open, the bytes in it and the messages that were dropped.
func (q *queue) state() (open bool, bytes int64, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open, q.bytes, q.dropped
}
