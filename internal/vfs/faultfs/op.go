package faultfs

import "fmt"

// Kind is a kind of operation.
type Kind uint8

// The operations of vfs.FS, then those of vfs.File. The hint StartWriteback is
// none: it reports nothing.
const (
	Create Kind = iota + 1
	Open
	OpenReadWrite
	Remove
	Rename
	MkdirAll
	SyncDir
	List
	Stat
	Lock
	LockExisting
	Usage
	Read
	Write
	Sync
	Size
	SetAccess
	Attributes
	SetAttributes
	Truncate
	Reserve
	Close
)

var kindNames = [...]string{
	Create: "create", Open: "open", OpenReadWrite: "open", Remove: "remove", Rename: "rename",
	MkdirAll: "mkdir", SyncDir: "syncdir", List: "list", Stat: "stat", Lock: "lock", LockExisting: "lock", Usage: "usage",
	Read: "read", Write: "write", Sync: "sync", Size: "size", SetAccess: "chmod",
	Attributes: "getxattr", SetAttributes: "setxattr", Truncate: "truncate", Reserve: "reserve",
	Close: "close",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Op is one operation that is about to begin.
type Op struct {
	Kind    Kind
	Index   int    // its place among all operations of the FS, from 0
	Name    string // of a file: the name it was opened by
	NewName string // of a Rename
	Off     int64  // of a Read, Write or Reserve; the new length of a Truncate
	Len     int    // of a Read, Write or Reserve
}
