// Package vfs is the file system as an argument. Every byte that kvd reads from
// or writes to a disk goes through an [FS], so that tests can lose power, fill
// the disk and break fsync at any operation.
//
// There are three: [OS] is the real one; [NewMem] keeps files in memory and can
// make the images that a power cut ([Mem.CrashImage]) or kill -9
// ([Mem.KillImage]) would leave; package faultfs wraps any of them and fails,
// tears or delays chosen operations.
//
// [Tail] writes files of the first that grow by small pieces without a system call for
// each, and all others by File.WriteAt.
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
