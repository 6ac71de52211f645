package commit

// placedID is a request id and its place in the window.
type placedID struct {
	id    requestID // zero: it was retracted
	place uint64
}

// idQueue holds the ids of a partition in the order of their places. It consists of chunks, so that it
// neither moves what it holds nor keeps much more memory than it needs.
type idQueue struct {
	chunks []*idChunk // oldest first
	head   int        // of the first chunk: before it are none
	tail   int        // of the last chunk: its length
	spare  *idChunk
}

type idChunk [256]placedID

func (q *idQueue) push(id placedID) {
	if len(q.chunks) == 0 || q.tail == len(idChunk{}) {
		chunk := q.spare
		if q.spare = nil; chunk == nil {
			chunk = new(idChunk)
		}
		q.chunks, q.tail = append(q.chunks, chunk), 0
	}
	q.chunks[len(q.chunks)-1][q.tail] = id
	q.tail++
}

// oldest returns the oldest id, nil if there is none.
func (q *idQueue) oldest() *placedID {
	if len(q.chunks) == 0 {
		return nil
	}
	return &q.chunks[0][q.head]
}

// pop removes the oldest id.
func (q *idQueue) pop() {
	if q.head++; q.head < len(idChunk{}) && (len(q.chunks) > 1 || q.head < q.tail) {
		return
	}
	q.spare = q.chunks[0]
	q.chunks[0] = nil
	q.chunks, q.head = q.chunks[1:], 0
}

// newest calls f with the ids, newest first, until it returns false.
func (q *idQueue) newest(f func(*placedID) bool) {
	for i := len(q.chunks) - 1; i >= 0; i-- {
		first, end := 0, len(idChunk{})
		if i == 0 {
			first = q.head
		}
		if i == len(q.chunks)-1 {
			end = q.tail
		}
		for at := end - 1; at >= first; at-- {
			if !f(&q.chunks[i][at]) {
				return
			}
		}
	}
}
