package loadgen

// Sample is one second or one line of a run's report: what happened since the previous
// one. It marshals to the line of the report.
type Sample struct {
	NanoTime      int64       `json:"nanoTime"` // since the measurement began
	OpsPerSecond  float64     `json:"opsPerSecond"`
	SlowestSecond *float64    `json:"slowestSecondOpsPerSecond"` // null without a whole second
	Conflicts     uint64      `json:"conflicts"`                 // since the measurement began
	FileSize      *int64      `json:"fileSize"`                  // bytes on disk; null if the target does not know
	Operations    []Operation `json:"operations"`                // those with a count

	Counts *Counts `json:"-"` // since the previous sample
	// OwnCPU and OtherCPU are shares of the machine's processor time in a second: of this
	// process, and of all others and the hypervisor. Nil if unknown, and of a line.
	OwnCPU   *float64 `json:"-"`
	OtherCPU *float64 `json:"-"`
	// ServerCPU is the share that a server in another process had of the processors that it
	// may use, in a second; nil if unknown, and of a line.
	ServerCPU *float64 `json:"-"`
}

// Operation summarizes the operations of one name.
type Operation struct {
	Name string `json:"operation"`
	Kind
}

// Operation returns the operations of one name, with a count of 0 if there were none.
func (s *Sample) Operation(name string) Operation { return find(s.Operations, name) }

func find(operations []Operation, name string) Operation {
	for _, o := range operations {
		if o.Name == name {
			return o
		}
	}
	return Operation{Name: name}
}

// Trial is the result of a Run.
type Trial struct {
	Seconds      float64     `json:"seconds"`
	Ops          uint64      `json:"ops"`
	OpsPerSecond float64     `json:"opsPerSecond"`
	Operations   []Operation `json:"operations"` // those with a count
	// Conflicts counts the transactions that had to be repeated, and ConflictRate is
	// their share of all attempts.
	Conflicts    uint64  `json:"conflicts"`
	ConflictRate float64 `json:"conflictRate"`
	// SlowestSecond is the lowest rate of any whole second, null without one. A value
	// far below the mean indicates stalls that the mean hides.
	SlowestSecond *float64 `json:"slowestSecondOpsPerSecond"`
	// LongestStallNanos is the longest time in which no operation of any worker ended,
	// to within 5 ms. In an open loop of few operations a second it is that between two of them.
	LongestStallNanos int64     `json:"longestStallNanos"`
	Generator         Generator `json:"generator"`
	// CPUMicrosPerOp and PeakRSSBytes are those of this process: the generator and an
	// embedded engine, or the generator and a client.
	CPUMicrosPerOp float64 `json:"cpuMicrosPerOp"`
	PeakRSSBytes   int64   `json:"peakRSSBytes"`
	DataBytes      *int64  `json:"dataBytes"` // on disk at the end; null if unknown
	Interrupted    bool    `json:"interrupted"`
	Unverified     bool    `json:"unverified,omitempty"` // the answers were not checked

	// All summarizes the latencies of operations of all kinds together, and how long missed ones
	// waited.
	All Latency `json:"allNanos"`
	// AllDue is All with refused operations, which took Never; nil if there were none.
	AllDue *Latency `json:"allDueNanos,omitempty"`
	// OfferedPerSecond is the rate at which operations were due; 0 in a closed loop.
	OfferedPerSecond uint64 `json:"offeredPerSecond,omitempty"`
	// Late is set in an open loop.
	Late *Late `json:"late,omitempty"`
	// Missed are the operations of an open loop that were due before the end of the run, and that
	// no worker had begun then. Their latencies are how long they had waited, and would have been
	// longer. Nil in a closed loop.
	Missed  *Kind  `json:"missed,omitempty"`
	Refused uint64 `json:"refused,omitempty"` // because of overload
	// OwnCPU and OtherCPU are shares of the machine's processor time: of this process, and
	// of all others and the hypervisor. Nil if unknown.
	OwnCPU   *float64 `json:"ownCPU,omitempty"`
	OtherCPU *float64 `json:"otherCPU,omitempty"`
	// Server is nil if the target is no server in another process, or its processor time was
	// not asked for.
	Server *ServerUse `json:"server,omitempty"`
	Error  string     `json:"error,omitempty"`

	Counts *Counts `json:"-"` // of the measurement
}

// Operation returns the operations of one name, with a count of 0 if there were none.
func (t *Trial) Operation(name string) Operation { return find(t.Operations, name) }

// Due returns how many operations were due: those that were done, refused or missed.
func (t *Trial) Due() uint64 {
	due := t.Ops + t.Refused
	if t.Missed != nil {
		due += t.Missed.Count
	}
	return due
}

// MostUnanswered is the largest share of operations without an answer that needs no warning: an
// operation may be due at the very end of a run.
const MostUnanswered = 0.001

// Unanswered returns the share of the operations that were due and were refused or missed.
func (t *Trial) Unanswered() float64 { return Ratio(t.Due()-t.Ops, t.Due()) }

// SetConflictRate computes the rate from the operations of one name; each was attempted
// once more than it had conflicts.
func (t *Trial) SetConflictRate(name string) {
	t.ConflictRate = Ratio(t.Conflicts, t.Conflicts+t.Operation(name).Count)
}
