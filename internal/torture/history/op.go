package history

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Key is the number of a key. Keys sort like their numbers.
type Key uint32

// Value is the number of a value. No two writes of a run put the same value.
type Value uint32

const (
	// Absent is the value of a deleted key, or of one that was never put.
	Absent Value = 0
	// Unseen is a value that is present but was not returned.
	Unseen Value = math.MaxUint32
)

// Read is what a client saw of a key.
type Read struct {
	Key     Key
	Value   Value
	Version kv.SeqNum // of the write that put the value; 0: absent, or not returned
}

// Scan is what a client saw of the keys in [From, To), in order.
type Scan struct {
	From, To Key
	Seen     []Read
}

// Write is a put or, if Value is Absent, a delete. If End is not zero, it deletes the
// keys in [Key, End).
type Write struct {
	Key, End Key
	Value    Value
}

func (w *Write) end() Key { return max(w.End, w.Key+1) }

// Kind is the kind of an Op.
type Kind uint8

const (
	// Get is a read of one key, at a version of its own partition; 0 if only the
	// version of the value was returned.
	Get Kind = iota + 1
	// Snapshot is a set of reads and scans at one version of the whole store. Call and
	// Return enclose the time at which the version was chosen.
	Snapshot
	// Commit is a write of any kind. It depends on its Reads and Scans, which must hold
	// at ReadVersion, unless that is 0, and when it is applied.
	Commit
)

// Outcome says how an Op ended for its client.
type Outcome uint8

const (
	// Done: it was answered or acknowledged.
	Done Outcome = iota + 1
	// Refused: it was never applied.
	Refused
	// Unknown: the client never learned whether it was applied.
	Unknown
)

// Op is one operation of a client.
type Op struct {
	Kind    Kind
	Outcome Outcome
	Client  uint16

	// Call and Return are nanoseconds of one monotonic clock for all clients.
	Call, Return int64

	ReadVersion kv.SeqNum
	Version     kv.SeqNum // of a Commit that is Done
	Reads       []Read
	Scans       []Scan
	Writes      []Write
}

// String describes the Op in one line, for a report.
func (o *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "client %d, %v to %v: ", o.Client, time.Duration(o.Call), time.Duration(o.Return))
	if o.ReadVersion != 0 {
		fmt.Fprintf(&b, "at %d ", o.ReadVersion)
	}
	for _, r := range o.Reads {
		fmt.Fprintf(&b, "read %s; ", r)
	}
	for _, s := range o.Scans {
		fmt.Fprintf(&b, "scanned %d to %d: %v; ", s.From, s.To, s.Seen)
	}
	for _, w := range o.Writes {
		switch {
		case w.End != 0:
			fmt.Fprintf(&b, "delete %d to %d; ", w.Key, w.End)
		case w.Value == Absent:
			fmt.Fprintf(&b, "delete %d; ", w.Key)
		default:
			fmt.Fprintf(&b, "put %d=%d; ", w.Key, w.Value)
		}
	}
	switch {
	case o.Outcome == Refused:
		b.WriteString("refused")
	case o.Outcome == Unknown:
		b.WriteString("outcome unknown")
	case o.Kind == Commit:
		fmt.Fprintf(&b, "committed at %d", o.Version)
	}
	return b.String()
}

func (r Read) String() string {
	switch r.Value {
	case Absent:
		return fmt.Sprintf("%d absent", r.Key)
	case Unseen:
		return fmt.Sprintf("%d=?@%d", r.Key, r.Version)
	}
	return fmt.Sprintf("%d=%d@%d", r.Key, r.Value, r.Version)
}
