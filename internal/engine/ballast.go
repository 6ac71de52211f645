package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/vfs"
)

// ballast is a file that reserves space for when the disk is full: recovery, deletes,
// flushes and compactions need space before they free any. Its bytes mean nothing, and
// its loss does no harm.
//
// Used by one goroutine at a time, except missing, which is safe for concurrent use.
type ballast struct {
	fs   vfs.FS
	name string
	size int64 // 0: there is none
	have atomic.Int64
	left bool // there may be a file that was not completed, of which space may be reserved
}

const (
	// maxBallast is enough for the flush of a large memtable. Guessed.
	maxBallast = 64 << 20
	// minBallast is the least size that is worth a file.
	minBallast = 64 << 10
	// ballastShare: the ballast takes at most 1/ballastShare of a disk.
	ballastShare = 16
)

// openBallast finds the ballast of an earlier opening. Its intended size is low, the mark of
// free space below which the store is read-only, but at most maxBallast.
func openBallast(fsys vfs.FS, name string, low uint64) (*ballast, error) {
	b := &ballast{fs: fsys, name: name, size: int64(min(low, maxBallast))}
	return b, b.find()
}

func (b *ballast) find() error {
	info, err := b.fs.Stat(b.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for the ballast: %w", err)
	}
	b.have.Store(info.Size())
	b.left = info.Size() == 0
	return nil
}

// bound adapts the intended size to the disk.
func (b *ballast) bound(usage vfs.Usage) {
	b.size = min(b.size, int64(min(usage.Total/ballastShare, maxBallast)))
	if b.size < minBallast {
		b.size = 0
	}
}

// missing returns how many bytes make would add.
func (b *ballast) missing() int64 { return max(b.size-b.have.Load(), 0) }

// make reserves the space. A file that is too small is replaced.
func (b *ballast) make() error {
	if b.missing() == 0 {
		return nil
	}
	if _, err := b.giveBack(); err != nil {
		return err
	}
	if err := b.create(); err != nil {
		left := vfs.RemoveIfThere(b.fs, b.name)
		b.left = left != nil
		return errors.Join(fmt.Errorf("make the ballast: %w", err), left)
	}
	b.have.Store(b.size)
	return nil
}

func (b *ballast) create() error {
	if err := vfs.RemoveIfThere(b.fs, b.name); err != nil {
		return err
	}
	f, err := b.fs.Create(b.name)
	if err != nil {
		return err
	}
	err = f.Reserve(0, b.size)
	if err == nil {
		err = f.Truncate(b.size) // the next opening takes the length for the reserved size
	}
	return errors.Join(err, f.Close())
}

// giveBack removes the file, and reports whether there was one.
func (b *ballast) giveBack() (gave bool, err error) {
	if b.have.Load() == 0 && !b.left {
		return false, nil
	}
	if err := vfs.RemoveIfThere(b.fs, b.name); err != nil {
		return false, fmt.Errorf("give the ballast back: %w", err)
	}
	b.have.Store(0)
	b.left = false
	return true, nil
}
