package history

import "fmt"

// Tally counts the outcomes of a client's operations.
type Tally struct {
	Transactions int // committed
	Conflicts    int
	TooOld       int // transactions whose reads the store could no longer validate

	Conditional         int // writes with a condition that held
	ConditionalFailures int
	Plain               int // puts, deletes, batches
	Executions          int

	Gets      int
	Snapshots int
	Scans     int

	// Lost counts answers that the client discarded.
	Lost int
	// Writes that were sent again after an unknown outcome: an earlier attempt was
	// applied, the retry was applied, neither was and the retry was refused, or the
	// outcome remained unknown.
	Applied, AppliedByRetry, RefusedAtRetry, Forgotten int
	// Deduplicated counts answers that report deduplication.
	Deduplicated int
}

// Add adds the counts of another client.
func (t *Tally) Add(o *Tally) {
	t.Transactions += o.Transactions
	t.Conflicts += o.Conflicts
	t.TooOld += o.TooOld
	t.Conditional += o.Conditional
	t.ConditionalFailures += o.ConditionalFailures
	t.Plain += o.Plain
	t.Executions += o.Executions
	t.Gets += o.Gets
	t.Snapshots += o.Snapshots
	t.Scans += o.Scans
	t.Lost += o.Lost
	t.Applied += o.Applied
	t.AppliedByRetry += o.AppliedByRetry
	t.RefusedAtRetry += o.RefusedAtRetry
	t.Forgotten += o.Forgotten
	t.Deduplicated += o.Deduplicated
}

func (t *Tally) String() string {
	return fmt.Sprintf("%d transactions committed, %d conflicts (%.1f %%), %d too old; "+
		"%d conditional writes, %d whose condition failed; %d plain writes and batches, %d executions; %d gets, %d snapshots, %d scans; "+
		"%d answers thrown away; "+
		"unknown outcomes: %d had been applied, %d were applied by the retry, %d refused at the retry, %d forgotten; %d deduplicated",
		t.Transactions, t.Conflicts, 100*float64(t.Conflicts)/float64(max(t.Conflicts+t.Transactions, 1)), t.TooOld,
		t.Conditional, t.ConditionalFailures, t.Plain, t.Executions, t.Gets, t.Snapshots, t.Scans,
		t.Lost, t.Applied, t.AppliedByRetry, t.RefusedAtRetry, t.Forgotten, t.Deduplicated)
}
