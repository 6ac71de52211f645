package kv

import "fmt"

// ReadOnlyError says why the store accepts no writes at present, with the figures of
// its disk. errors.Is(err, ErrReadOnly) holds for it.
type ReadOnlyError struct {
	Reason string // such as "the disk is nearly full"
	Free   uint64 // free bytes of the disk
	Resume uint64 // writes resume when this many bytes are free; 0: free space does not help, and Reason says what does
}

// Error contains no file names: the text may go to callers over the network.
func (e *ReadOnlyError) Error() string { return ErrReadOnly.Error() + ": " + e.Message() }

// Message is the text without the prefix "read-only".
func (e *ReadOnlyError) Message() string {
	if e.Resume == 0 {
		return e.Reason
	}
	return fmt.Sprintf("%s: %s free, writes resume at %s; deletes are taken if there is room for them: delete keys, or free space on the disk",
		e.Reason, mebibytes(e.Free), mebibytes(e.Resume))
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// Is makes every ReadOnlyError match ErrReadOnly.
func (e *ReadOnlyError) Is(target error) bool { return target == ErrReadOnly }
