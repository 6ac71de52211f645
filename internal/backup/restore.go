package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"syscall"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

const restoring = "A restore of a backup into this directory has not ended, or was interrupted.\n" +
	"If no kvd restore is running, remove the directory and restore again.\n"

// maxStore bounds the file STORE, which is kept in memory until all others are written.
const maxStore = 64 << 10

// Restore writes the files of a backup to target, which then is a store. Every checksum is
// compared. If replay is not nil, it extends the log.
//
// Errors: kv.ErrInvalidArgument if target is not empty, or the archive is not of that store;
// a *kv.CorruptionError if the backup or the archive is damaged. After an error target is no
// store.
func (d *Directory) Restore(ctx context.Context, m *Manifest, replay *Replay, target string, o Options) error {
	r, err := beginRestore(d.fsys, target)
	if err != nil {
		return err
	}
	total := m.Bytes()
	if replay != nil {
		total += 2 * replay.Bytes() // they are copied, then verified
	}
	t := newTransfer(o, total)
	for i := range m.Files {
		f := &m.Files[i]
		err := r.add(ctx, t, f.Name, f.Size, func(w io.Writer) error {
			return t.readFile(ctx, d.fsys, d.filePath(f), w, f.Size, uint64(f.Sum))
		})
		if err != nil {
			return r.ended(err)
		}
	}
	return r.ended(r.end(ctx, t, m, replay))
}

// restore fills one directory.
type restore struct {
	fsys  vfs.FS
	dir   string
	lock  io.Closer
	dirs  map[string]bool // those made, by name
	store []byte          // the content of STORE
}

// beginRestore makes the directory, or takes an empty one.
//
// Errors: vfs.ErrLocked if another process fills it; kv.ErrInvalidArgument if it is not empty.
func beginRestore(fsys vfs.FS, dir string) (_ *restore, err error) {
	if err := fsys.MkdirAll(dir); errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%w: %s is a file, or one of its parents is; give a directory", kv.ErrInvalidArgument, dir)
	} else if err != nil {
		return nil, err
	}
	r := &restore{fsys: fsys, dir: dir, dirs: map[string]bool{}}
	if r.lock, err = descriptor.LockFilling(fsys, dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.lock.Close())
		}
	}()
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		switch name {
		case "lost+found":
		case descriptor.RestoringName:
			return nil, fmt.Errorf("%w: %s holds a restore that was interrupted; remove the directory and restore again", kv.ErrInvalidArgument, dir)
		default:
			return nil, fmt.Errorf("%w: %s is not empty: it holds %s; restore into a new or empty directory", kv.ErrInvalidArgument, dir, name)
		}
	}
	if err := vfs.SyncParents(fsys, dir); err != nil {
		return nil, err
	}
	return r, vfs.WriteAtomic(fsys, path.Join(dir, descriptor.RestoringName), []byte(restoring))
}

// ended unlocks the directory, and says what to do about an error.
func (r *restore) ended(err error) error {
	unlocked := r.lock.Close()
	if err == nil {
		return unlocked
	}
	return fmt.Errorf("%w; %s holds an unfinished restore: remove it before the next attempt", err, r.dir)
}

// add writes one file; content writes its content, and compares its checksum.
func (r *restore) add(ctx context.Context, t *transfer, name string, size int64, content func(io.Writer) error) (err error) {
	if err := checkName(name); err != nil {
		return err
	}
	if name == descriptor.Name {
		if size > maxStore {
			return kv.Corruptf(name, -1, "%d bytes, want at most %d", size, maxStore)
		}
		var b bytes.Buffer
		err := content(&b)
		r.store = b.Bytes()
		return err
	}
	if dir := path.Dir(name); !r.dirs[dir] {
		if err := r.fsys.MkdirAll(path.Join(r.dir, dir)); err != nil {
			return err
		}
		r.dirs[dir] = true
	}
	f, err := r.fsys.Create(path.Join(r.dir, name))
	if err != nil {
		return err
	}
	err = content(&fileWriter{f: f})
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// end extends the log and makes a store of what was added.
func (r *restore) end(ctx context.Context, t *transfer, m *Manifest, replay *Replay) error {
	if r.store == nil {
		return kv.Corruptf(descriptor.Name, -1, "the backup does not hold this file")
	}
	if replay != nil {
		if err := replay.apply(ctx, t, r.fsys, r.dir, m); err != nil {
			return err
		}
	}
	for dir := range r.dirs {
		if err := r.fsys.SyncDir(path.Join(r.dir, dir)); err != nil {
			return err
		}
	}
	if err := r.fsys.SyncDir(r.dir); err != nil {
		return err
	}
	if err := vfs.WriteAtomic(r.fsys, descriptor.Path(r.dir), r.store); err != nil {
		return err
	}
	if err := r.fsys.Remove(path.Join(r.dir, descriptor.RestoringName)); err != nil {
		return err
	}
	return r.fsys.SyncDir(r.dir)
}
