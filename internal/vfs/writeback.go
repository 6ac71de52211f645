package vfs

// WritebackBytes is how much of a file is written before the kernel is asked to begin writing it
// to the disk. Guessed: a few of the requests that a disk takes.
const WritebackBytes = 1 << 20

// Writeback asks the kernel to write a file to the disk while the file grows. Without that its
// sync has all of it to write, and syncs of other files on that disk wait meanwhile. The zero value
// is for an empty file. It is used by one goroutine.
type Writeback struct{ asked int64 } // end of the bytes that were asked for

// Written is called when all bytes of f below end have been written.
func (w *Writeback) Written(f File, end int64) {
	if end-w.asked >= WritebackBytes {
		f.StartWriteback(w.asked, end-w.asked)
		w.asked = end
	}
}
