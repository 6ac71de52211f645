package frame

// Timing is a stage of the server's work on a frame: the index in Response.Timings of
// that stage's nanoseconds. New stages are only appended.
type Timing int

// The stages of the operations of an answer, from when the whole frame was read until
// this answer was encoded. The first two are sums: TimingServer is the total, and
// TimingStore is the sum of the stages after it. The difference is the time to encode
// the results, and to send results of the same frame that were answered before.
const (
	TimingServer Timing = 0
	TimingStore  Timing = 1

	// TimingGate: decoding the frame, and waiting for admission.
	TimingGate Timing = 2
	// TimingInbox: waiting until a partition took the operations up.
	TimingInbox Timing = 3
	// TimingBatch: writes, until their micro-batch was handed to the log.
	TimingBatch Timing = 4
	// TimingEngine: lookups; for writes the work after the log.
	TimingEngine Timing = 5
	// TimingLogWrite: waiting until the kernel had the log's record.
	TimingLogWrite Timing = 6
	// TimingSync: waiting until the disk had it.
	TimingSync Timing = 7

	// TimingCount is the number of stages in this version.
	TimingCount = 8
)
