package kvd

import (
	"iter"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// ReadOption is an option of one Get, GetItem or GetMany.
type ReadOption interface{ forRead(readOptions) readOptions }

// ScanOption is an option of one Scan.
type ScanOption interface{ forScan(scanOptions) scanOptions }

var (
	_ ReadOption = AtVersion(0)
	_ ScanOption = AtVersion(0)
	_ ReadOption = Stale(0)
	_ ScanOption = Stale(0)
	_ ReadOption = MinVersion(0)
	_ ScanOption = MinVersion(0)
)

type readOptions struct {
	at      backend.ReadVersion
	timings *Timings
}

type scanOptions struct {
	readOptions
	reverse  bool
	keysOnly bool
	borrow   bool
	limit    uint64
}

// AtVersion is a ReadOption and a ScanOption: AtVersion(v) reads as of version v. A snapshot
// at v, of any client, must be open; otherwise the call returns ErrVersionGone. 0 is the newest
// version. Reads of snapshots and transactions do not take it.
type AtVersion uint64

func (v AtVersion) forRead(o readOptions) readOptions {
	o.at.Version, o.at.Epoch = uint64(v), 0
	return o
}

func (v AtVersion) forScan(o scanOptions) scanOptions {
	o.at.Version, o.at.Epoch = uint64(v), 0
	return o
}

// Stale is a ReadOption and a ScanOption for a cluster: with Stale(maxLag) the read may miss what was
// acknowledged less than maxLag before the server began with it, and sees everything that was
// acknowledged earlier, by whichever node. It costs no message to the node that leads if the server
// has asked that for another read within maxLag, and what any read costs otherwise. A node that is cut
// off from the others answers such reads for as long as maxLag.
//
// Only the clock of the server counts, and neither clocks of other machines nor a pause of the
// server's process make a read miss more. Time in which the whole machine stands still, with its
// clocks, does not count. Two stale reads, one after the other, may be answered by nodes that have
// come to different versions; see MinVersion. A node that serves alone ignores the option. Reads of
// snapshots and transactions do not take it. maxLag is rounded down to milliseconds.
type Stale time.Duration

func (s Stale) forRead(o readOptions) readOptions {
	o.at.MaxLag = max(time.Duration(s), 0)
	return o
}

func (s Stale) forScan(o scanOptions) scanOptions {
	o.readOptions = s.forRead(o.readOptions)
	return o
}

// MinVersion is a ReadOption and a ScanOption for a cluster: with MinVersion(v) the read sees what
// version v did, of a write or of an earlier read. Without Stale a read sees every acknowledged write
// anyway; with it, this lets a client read on any node what it has written itself. A node that has not
// come to the version yet asks the one that leads, as for a read without Stale. ErrVersionGone: the
// cluster does not have the version, so it is of another one, or was lost when this one was restored
// or recovered; drop it and read again. A node that serves alone ignores the option. Reads of
// snapshots and transactions do not take it.
type MinVersion uint64

func (v MinVersion) forRead(o readOptions) readOptions {
	o.at.MinVersion = uint64(v)
	return o
}

func (v MinVersion) forScan(o scanOptions) scanOptions {
	o.readOptions = v.forRead(o.readOptions)
	return o
}

type scanOption func(scanOptions) scanOptions

func (f scanOption) forScan(o scanOptions) scanOptions { return f(o) }

// Reverse scans from the end of the range to its start.
func Reverse() ScanOption {
	return scanOption(func(o scanOptions) scanOptions {
		o.reverse = true
		return o
	})
}

// Limit ends the scan after n items; 0 means no limit.
func Limit(n int) ScanOption {
	return scanOption(func(o scanOptions) scanOptions {
		o.limit = uint64(max(n, 0))
		return o
	})
}

// KeysOnly omits the values.
func KeysOnly() ScanOption {
	return scanOption(func(o scanOptions) scanOptions {
		o.keysOnly = true
		return o
	})
}

// Borrow lends the items of a scan to the loop: a key and a value are valid until the next step
// of the loop, which must not change them. An embedded store then copies nothing. Over a network,
// and in a transaction, items are copied as without it.
func Borrow() ScanOption {
	return scanOption(func(o scanOptions) scanOptions {
		o.borrow = true
		return o
	})
}

// collectRead collects the options of a read named op.
func collectRead(op string, opts []ReadOption) (o readOptions, err error) {
	for i, opt := range opts {
		if opt != nil {
			o = opt.forRead(o)
		} else if err == nil {
			err = &Error{Op: op, Err: nilOption(i)}
		}
	}
	return o, err
}

func collectScan(opts []ScanOption) (o scanOptions, err error) {
	for i, opt := range opts {
		if opt != nil {
			o = opt.forScan(o)
		} else if err == nil {
			err = &Error{Op: "scan", Err: nilOption(i)}
		}
	}
	return o, err
}

// failedScan is a scan that yields an error alone.
func failedScan(err error) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) { yield(Item{}, err) }
}
