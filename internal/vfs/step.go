package vfs

// StepKind is a kind of mutating operation.
type StepKind string

// The operations that count as steps of a Mem.
const (
	StepCreate   StepKind = "create"
	StepWrite    StepKind = "write"
	StepTruncate StepKind = "truncate"
	StepReserve  StepKind = "reserve"
	StepSync     StepKind = "sync"
	StepSyncDir  StepKind = "syncdir"
	StepRename   StepKind = "rename"
	StepRemove   StepKind = "remove"
	StepMkdir    StepKind = "mkdir"

	StepSetAccess     StepKind = "setaccess"
	StepSetAttributes StepKind = "setattributes"
)

// Step is one mutating operation that is about to begin.
type Step struct {
	N    int // counts from 1
	Kind StepKind
	Name string // of a rename: the old name
}

// SetHook makes Mem call hook before each mutating operation, whether that then
// succeeds or not. A nil hook is none.
//
// The hook runs on the goroutine of the operation and outside of all locks: it
// may call any method, CrashImage above all, and concurrent operations call it
// concurrently.
func (m *Mem) SetHook(hook func(Step)) {
	if hook == nil {
		m.hook.Store(nil)
		return
	}
	m.hook.Store(&hook)
}

// Steps returns how many mutating operations have begun.
func (m *Mem) Steps() int { return int(m.steps.Load()) }

func (m *Mem) step(kind StepKind, name string) {
	n := m.steps.Add(1)
	if hook := m.hook.Load(); hook != nil {
		(*hook)(Step{N: int(n), Kind: kind, Name: name})
	}
}
