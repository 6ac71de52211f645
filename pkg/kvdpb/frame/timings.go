package frame

// Timing is a stage of the server's work on a frame: an index of
// Response.Timings, which has that stage's nanoseconds. Indexes are only ever
// added.
type Timing int

// The stages of the operations of an answer, from when the whole frame was read
// until this answer was written down. The first two are sums: TimingServer has all
// of the others, and TimingStore those behind it. What TimingServer has beside
// TimingStore is the answer: results that were put together, and those that were
// sent before.
const (
	TimingServer Timing = 0
	TimingStore  Timing = 1

	// TimingGate: the frame was taken apart, and waited for room in the store.
	TimingGate Timing = 2
	// TimingInbox: waiting until a partition took the operations up.
	TimingInbox Timing = 3
	// TimingBatch: writes waited until their micro-batch was handed to the log.
	TimingBatch Timing = 4
	// TimingEngine: lookups; what writes take after the log.
	TimingEngine Timing = 5
	// TimingLogWrite: waiting until the kernel had the log's record.
	TimingLogWrite Timing = 6
	// TimingSync: waiting until the disk had it.
	TimingSync Timing = 7

	// TimingCount is how many there are in this version.
	TimingCount = 8
)
