package faultfs

import (
	"path"
	"slices"
	"sync/atomic"
)

// Fault is what happens to an operation. The zero Fault is none.
type Fault struct {
	// Err is what the operation returns, wrapped in an *os.PathError.
	Err error
	// Short is how many bytes a failing Write stores first.
	Short int
	// DropDirty makes a Sync or SyncDir lose what it should have made durable while
	// reads and lookups go on to show it, as Linux does when a device fails; a later
	// one makes only what came after it durable. With a nil Err it claims success: a
	// lying disk. Only a vfs.Mem and its files can.
	DropDirty bool
	// FlipMask is combined by exclusive or with the byte at offset FlipOffset of
	// the file, if a Read or a Write covers it. The memory of a Write stays as it is.
	FlipMask   byte
	FlipOffset int64
	// Delay, if not nil, is called first; the operation waits until it returns.
	Delay func()
}

func (f *Fault) none() bool {
	return f.Err == nil && !f.DropDirty && f.FlipMask == 0 && f.Delay == nil
}

// Injector decides about each operation before it is done. It is called from
// the goroutine of the operation and must be safe for concurrent use.
type Injector interface {
	Inject(Op) Fault
}

// InjectorFunc is a function as an Injector.
type InjectorFunc func(Op) Fault

// Inject calls f.
func (f InjectorFunc) Inject(op Op) Fault { return f(op) }

// Predicate chooses operations.
type Predicate func(Op) bool

// OnKind chooses the operations of any of the kinds.
func OnKind(kinds ...Kind) Predicate {
	return func(op Op) bool { return slices.Contains(kinds, op.Kind) }
}

// OnName chooses the operations on a file whose name, without its directory,
// matches the pattern of path.Match; of a rename either name counts.
func OnName(pattern string) Predicate {
	if _, err := path.Match(pattern, ""); err != nil {
		panic("faultfs: pattern " + pattern + ": " + err.Error())
	}
	match := func(name string) bool {
		matched, err := path.Match(pattern, path.Base(name))
		return matched && err == nil
	}
	return func(op Op) bool { return match(op.Name) || op.NewName != "" && match(op.NewName) }
}

// Rule is an Injector with one Fault for one operation, or for that and all
// later ones. Make it with At, FailAt or FlipBit.
type Rule struct {
	index      int64
	sticky     bool
	fault      Fault
	predicates []Predicate

	count atomic.Int64 // operations chosen by the predicates so far
	fired atomic.Bool
}

// At returns a Rule for the index-th operation, from 0, of those that all
// predicates choose; if sticky, for every later one of them too. It counts from
// when it first serves an FS.
func At(index int, sticky bool, fault Fault, predicates ...Predicate) *Rule {
	return &Rule{index: int64(index), sticky: sticky, fault: fault, predicates: predicates}
}

// FailAt is At with an error and nothing else.
func FailAt(index int, err error, sticky bool, predicates ...Predicate) *Rule {
	return At(index, sticky, Fault{Err: err}, predicates...)
}

// FlipBit inverts a bit of the byte at an offset in every Read that covers it.
func FlipBit(offset int64, bit uint, predicates ...Predicate) *Rule {
	covers := func(op Op) bool {
		return op.Kind == Read && op.Off <= offset && offset < op.Off+int64(op.Len)
	}
	return At(0, true, Fault{FlipMask: 1 << (bit % 8), FlipOffset: offset}, append(predicates, covers)...)
}

// Inject counts the operation, if the predicates choose it, and decides.
func (r *Rule) Inject(op Op) Fault {
	for _, chooses := range r.predicates {
		if !chooses(op) {
			return Fault{}
		}
	}
	n := r.count.Add(1) - 1
	if n < r.index || n > r.index && !r.sticky {
		return Fault{}
	}
	r.fired.Store(true)
	return r.fault
}

// Count returns how many operations the predicates have chosen.
func (r *Rule) Count() int { return int(r.count.Load()) }

// Fired reports whether the Fault has been given out.
func (r *Rule) Fired() bool { return r.fired.Load() }
