package workload

import "context"

// Target is the store under test, as the runner sees it.
//
// Obligations of an implementation:
//
//  1. Put, Delete and Get may be called by many goroutines at once.
//  2. key, value and buf are borrowed until the call returns.
//  3. A nil error of Put or Delete means that later Gets, of any goroutine, see
//     it. What a crash may do to it is the business of the run's durability.
//  4. Get may put the value into buf, or return memory of its own; the runner
//     is done with either before its goroutine calls the target again.
//  5. found tells an absent key from an empty value. An absent key is no error.
//  6. A call returns soon after ctx ends.
//  7. Close is called once, by whoever made the target, after the run.
type Target interface {
	Put(ctx context.Context, key, value []byte) error
	Delete(ctx context.Context, key []byte) error
	Get(ctx context.Context, key, buf []byte) (value []byte, found bool, err error)
	Close() error
}

// DiskUser is a Target that knows how many bytes it takes on disk. It is asked
// once an interval, while operations go on.
type DiskUser interface {
	DiskBytes() (int64, error)
}
