package kvd

import (
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Timings says where the time of one call went. Each moment of the call is in one stage, and
// Total is their sum. A stage of the server may cover work for other operations that it served
// together with this one, usually those of the same kind in the same frame.
type Timings struct {
	// ClientQueue is the time in the client until the operation was sent. It includes all
	// tries before the last.
	ClientQueue time.Duration
	// Network is the time from then until the answer arrived, minus the stages of the
	// server: transmission, and waiting in the buffers of both systems. If no answer
	// arrived, it is the whole wait.
	Network time.Duration

	// Gate is the time until the server admitted the operation to the store: decoding its
	// frame and, under overload, waiting for room.
	Gate time.Duration
	// Inbox is the wait until a partition served the operation.
	Inbox time.Duration
	// Batch is the wait of a write until its micro-batch was passed to the log.
	Batch time.Duration
	// Engine is the time of lookups in memory and files and, for a write, the time after
	// the log.
	Engine time.Duration
	// LogWrite is the wait until the server's kernel had the record of the log, and Sync
	// the wait until the disk had it. A write waits only for the durability that it asked
	// for, and for the writes before it in its partition.
	LogWrite, Sync time.Duration
	// Reply is the time in which the server assembled the answer.
	Reply time.Duration

	// Return is the time from the arrival of the answer until the caller resumed.
	Return time.Duration

	// Attempts is the number of tries.
	Attempts int
	// FrameOps is the number of operations in the frame; 0 if the operation was not sent in
	// a frame.
	FrameOps int
}

// Total returns the sum of all stages, which is the time of the call.
func (t *Timings) Total() time.Duration { return (*backend.Timings)(t).Total() }

// CallOption is an option of any read or write other than a scan.
type CallOption interface {
	ReadOption
	WriteOption
}

// Timed makes the call fill in where its time went. If the call fails, it fills in what is
// known: zero if the call is refused before it is sent. So it never shows the times of an earlier
// call. It adds about thirty bytes to the answer frame; the server measures in any case.
//
// A nil pointer asks for nothing. Reads served from a transaction's own writes report zero.
// The writes of a transaction do not take Timed; Commit does.
func Timed(into *Timings) CallOption { return timed{into} }

type timed struct{ into *Timings }

// reset sets timings to zero, unless they are nil. A call does so when it collects its options, before
// it checks anything; Do of a pipeline does it again, as that is the call.
func (t *Timings) reset() {
	if t != nil {
		*t = Timings{}
	}
}

func (t timed) forRead(o readOptions) readOptions {
	t.into.reset()
	o.timings = t.into
	return o
}

func (t timed) forWrite(o *writeOptions) {
	t.into.reset()
	o.choose(choseTimed, nil)
	o.timings = t.into
}
