package kvd

import (
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Timings is where the time of one call went. Each moment of it is in one field: see
// Total. What one stage waits for, another call may be in the midst of: the stages of
// the server are those of all operations that it served together with this one,
// usually those of one kind in the same frame.
type Timings struct {
	// ClientQueue is the time in the client until the operation left: until there was
	// room for its frame. If it was tried several times, all but the last try is here.
	ClientQueue time.Duration
	// Network is from then until the answer came, but for what the server says that it
	// took: the way there and back, and waiting in the buffers of both systems. Without
	// an answer it is all the time that was waited for one.
	Network time.Duration

	// Gate is the time until the store of the server had the operation: until its frame
	// was taken apart and, in an overload, there was room for it.
	Gate time.Duration
	// Inbox is the wait until a partition took it up.
	Inbox time.Duration
	// Batch is the wait of a write until its micro-batch was handed to the log.
	Batch time.Duration
	// Engine is the work: lookups in memory and in files; what a write takes behind the
	// log.
	Engine time.Duration
	// LogWrite is the wait until the server's kernel had the log's record, and Sync that
	// until the disk had it. What the durability of a write does not ask for is not
	// waited for, but a write does wait for those before it in its partition.
	LogWrite, Sync time.Duration
	// Reply is the time in which the server put the answer together.
	Reply time.Duration

	// Return is from when the answer came until the call went on.
	Return time.Duration

	// Attempts is how often the call was tried.
	Attempts int
	// FrameOps is how many operations were in the frame of this one; 0 if it was no
	// frame that it travelled in.
	FrameOps int
}

// Total returns the sum of all stages: how long the call took.
func (t *Timings) Total() time.Duration { return (*backend.Timings)(t).Total() }

// CallOption is a choice for any read or write but a scan.
type CallOption interface {
	ReadOption
	WriteOption
}

// Timed has the call fill in where its time went, also if it fails, as far as that is
// known then. The server measures anyway; the answer to the frame of a timed
// operation is some thirty bytes longer.
//
// A nil pointer asks for nothing. A read that a transaction answers itself takes no
// time; what a Commit needs is in its own, not in those of its writes, which do not take
// this option.
func Timed(into *Timings) CallOption { return timed{into} }

type timed struct{ into *Timings }

// tookNoTime is what a read is told that needs no server.
func (o *readOptions) tookNoTime() {
	if o.timings != nil {
		*o.timings = Timings{}
	}
}

func (t timed) forRead(o readOptions) readOptions {
	o.timings = t.into
	return o
}

func (t timed) forWrite(o *writeOptions) {
	o.choose(choseTimed, nil)
	o.timings = t.into
}
