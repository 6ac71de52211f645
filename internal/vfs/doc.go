// Package vfs is the file system as an argument. Every byte that kvd reads from
// or writes to a disk goes through an [FS], so that tests can lose power, fill
// the disk and break fsync at any operation.
//
// There are three: [OS] is the real one; [NewMem] keeps files in memory and can
// make the images that a power cut ([Mem.CrashImage]) or kill -9
// ([Mem.KillImage]) would leave; package faultfs wraps any of them and fails,
// tears or delays chosen operations.
//
// The service wraps its own by [Watch], which knows the operations that have not
// returned: a disk that hangs reports no error.
//
// No file is mapped into memory. A page fault on a disk that stalls would block a
// thread that still holds its processor slot of Go's scheduler, and the next garbage
// collection would wait for it, and everything else for the garbage collection. A
// thread that blocks in a system call has given its slot back. A lint test keeps it so.
//
// # What a power cut keeps
//
// The contract that the rest of kvd relies on is the one of POSIX file systems,
// no more: the bytes of a file are durable after File.Sync, a directory entry
// (a created, renamed or removed name) after SyncDir of its directory, and
// neither implies the other. Everything else may be there, be missing, be torn
// at a 512-byte sector, or be there in another order.
//
// A failed Sync is final. The kernel may have dropped the dirty pages and marked
// them clean, so a second Sync returning nil proves nothing (the "fsyncgate" of
// 2018; Rebello et al., "Can Applications Recover from fsync Failures?", ATC
// 2020). A file whose Sync failed is only ever closed.
package vfs
