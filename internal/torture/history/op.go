package history

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Key is the number of a key: the order of numbers is that of keys.
type Key uint32

// Value is the number of a value. No two writes of a run put the same one.
type Value uint32

const (
	// Absent is what a deleted key, or one that never was, holds.
	Absent Value = 0
	// Unseen is a value that is there, but was not told.
	Unseen Value = math.MaxUint32
)

// Read is what somebody saw of a key.
type Read struct {
	Key     Key
	Value   Value
	Version kv.SeqNum // of the write that put the value; 0: absent, or not told
}

// Scan is what somebody saw of the keys from From on and below To, in order.
type Scan struct {
	From, To Key
	Seen     []Read
}

// Write is a put, or, of the value Absent, a delete: of all keys below End if End
// is not zero.
type Write struct {
	Key, End Key
	Value    Value
}

func (w *Write) end() Key { return max(w.End, w.Key+1) }

// Kind says what an Op is.
type Kind uint8

const (
	// Get is a read of one key, at a version of its own partition; 0 if that was
	// not told, and only the version of the value was.
	Get Kind = iota + 1
	// Snapshot is reads and scans at one version of the whole store. Its Call and
	// Return are of the moment at which the version was chosen.
	Snapshot
	// Commit is a write of any kind. Its Reads and Scans are what it depends on, at
	// ReadVersion and still when it happens; if ReadVersion is 0 just then.
	Commit
)

// Outcome says how an Op ended for its client.
type Outcome uint8

const (
	// Done: it was answered or acknowledged.
	Done Outcome = iota + 1
	// Refused: it never happened.
	Refused
	// Unknown: the client never learnt whether it happened.
	Unknown
)

// Op is one thing that a client did.
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

// String is one line for whoever has to find out what went wrong.
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
