// Package faultfs makes chosen operations of a file system fail, stop half-way,
// lie or wait. It serves tests only.
//
// [Wrap] numbers the operations on a [vfs.FS] and on its files, and asks an
// [Injector] about each before it is done. The usual test fails operation 0, 1,
// 2, ... of a short life of the store until a run is over before its fault:
//
//	for i := 0; ; i++ {
//		fsys := faultfs.Wrap(vfs.NewMem(), faultfs.FailAt(i, syscall.EIO, false))
//		live(fsys)
//		check(...)
//		if !fsys.Fired() {
//			break
//		}
//	}
//
// An operation that fails has not been done, but for a write with
// [Fault.Short], a sync with [Fault.DropDirty], and Close, which always closes.
package faultfs
