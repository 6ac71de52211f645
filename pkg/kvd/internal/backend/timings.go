package backend

import "time"

// Timings is kvd.Timings. A backend without a network leaves the stages of one at zero.
type Timings struct {
	ClientQueue    time.Duration
	Network        time.Duration
	Gate           time.Duration
	Inbox          time.Duration
	Batch          time.Duration
	Engine         time.Duration
	LogWrite, Sync time.Duration
	Reply          time.Duration
	Return         time.Duration
	Attempts       int
	FrameOps       int
}

// SlowLog is what a backend remembers of requests that took long.
type SlowLog struct {
	Threshold time.Duration
	Total     uint64
	Requests  []SlowRequest
}

// SlowRequest is one of them: kvd.SlowRequest, whose Timings have another type.
type SlowRequest struct {
	ID        uint64
	At        time.Time
	Method    string
	Code      string
	Peer      string
	KeyPrefix []byte
	KeyBytes  int
	Ops       int
	Bytes     int
	Timings   Timings
}

// Total returns the sum of all stages.
func (t *Timings) Total() time.Duration {
	return t.ClientQueue + t.Network + t.Store() + t.Return
}

// Store returns the sum of the stages that are not the client's or the network's.
func (t *Timings) Store() time.Duration {
	return t.Gate + t.Inbox + t.Batch + t.Engine + t.LogWrite + t.Sync + t.Reply
}
