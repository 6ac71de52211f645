package frame

// Timing is a stage of the server's work on a frame: an index of
// Response.Timings, which has that stage's nanoseconds. Indexes are only ever
// added.
type Timing int

// The stages. They overlap: the first one has all of the others.
const (
	// TimingServer: from when the whole frame was read until this answer was
	// written down.
	TimingServer Timing = 0
	// TimingStore: in calls of the store for the operations of this answer, and
	// waiting for room for them.
	TimingStore Timing = 1
)
