package kvd

import "github.com/kvd-db/kvd/pkg/kvd/internal/backend"

// ReadOption is an option of one Get, GetItem or GetMany.
type ReadOption interface{ forRead(readOptions) readOptions }

// ScanOption is an option of one Scan.
type ScanOption interface{ forScan(scanOptions) scanOptions }

var (
	_ ReadOption = AtVersion(0)
	_ ScanOption = AtVersion(0)
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
	o.at = backend.ReadVersion{Version: uint64(v)}
	return o
}

func (v AtVersion) forScan(o scanOptions) scanOptions {
	o.at = backend.ReadVersion{Version: uint64(v)}
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

func collectRead(opts []ReadOption) (o readOptions) {
	for _, opt := range opts {
		o = opt.forRead(o)
	}
	return o
}

func collectScan(opts []ScanOption) (o scanOptions) {
	for _, opt := range opts {
		o = opt.forScan(o)
	}
	return o
}
