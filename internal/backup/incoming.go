package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// completeName is the name of the manifest of the files that were received.
const completeName = "COMPLETE"

func incomingDir(dir string) string { return path.Join(dir, descriptor.IncomingName) }

// Receive copies the files of a source into the directory incoming of a data directory. Files
// that an interrupted attempt has copied, and those that the store in the data directory has
// itself, are not fetched if their contents are the same; the latter are copied from there. The
// store does not change, and nothing else may change incoming meanwhile. The rate of o bounds what
// is received, and apart from that what is read of these files.
//
// When Receive returns, all files and their names are synced, and so is the manifest, which is
// written last: see [Incoming].
//
// Errors: those of the source, of the file system and of ctx; a *kv.CorruptionError for content
// that differs from its checksum. Receive can be repeated.
func Receive(ctx context.Context, source Source, fsys vfs.FS, dir string, now time.Time, o Options) (*Result, error) {
	info := source.Info()
	r := &receiver{ctx: ctx, fsys: fsys, dir: dir, result: &Result{Manifest: &Manifest{
		Format: plainFormat, ID: now.UTC().Format(idLayout), Store: hex64(info.StoreID), Version: info.Version,
	}}}
	listed, total := map[string]bool{}, int64(0)
	for _, f := range info.Files {
		if err := checkName(f.Name); err != nil {
			return nil, err
		}
		listed[f.Name] = true
		total += f.Size
	}
	r.transfer, r.local = newTransfer(o, total), newTransfer(Options{Rate: o.Rate}, 0)
	if err := r.begin(listed); err != nil {
		return nil, err
	}
	for _, f := range info.Files {
		if err := r.add(source, f); err != nil {
			return nil, fmt.Errorf("receive %s: %w", f.Name, err)
		}
	}
	if err := r.result.check(); err != nil {
		return nil, fmt.Errorf("%w: what is to be received is no store: %w", kv.ErrCorrupt, err)
	}
	return r.result, r.end()
}

// Incoming returns the manifest of what Receive has completed in a data directory.
//
// Errors: fs.ErrNotExist if there is none; a *kv.CorruptionError if the manifest is damaged, or
// a file has not its length.
func Incoming(fsys vfs.FS, dir string) (*Manifest, error) {
	m, err := readManifest(fsys, path.Join(incomingDir(dir), completeName))
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		name := path.Join(incomingDir(dir), f.Name)
		switch info, err := fsys.Stat(name); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, kv.Corruptf(name, -1, "the file is missing")
		case err != nil:
			return nil, err
		case info.Size() != f.Size:
			return nil, kv.Corruptf(name, -1, "%d bytes, want %d", info.Size(), f.Size)
		}
	}
	return m, nil
}

// RemoveIncoming removes what Receive has copied to a data directory, the manifest first, and
// the directory. It does nothing if there is none.
func RemoveIncoming(fsys vfs.FS, dir string) error {
	r := &receiver{fsys: fsys, dir: dir}
	if err := r.clear(nil); err != nil {
		return err
	}
	if err := vfs.RemoveIfThere(fsys, incomingDir(dir)); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// receiver is one call of Receive.
type receiver struct {
	ctx             context.Context
	fsys            vfs.FS
	dir             string
	transfer, local *transfer // from the source; within this machine
	result          *Result
}

// begin makes the directory, and removes what is not listed, the manifest first.
func (r *receiver) begin(listed map[string]bool) error {
	if err := r.clear(listed); err != nil {
		return err
	}
	dirs := map[string]bool{".": true}
	for name := range listed {
		dirs[path.Dir(name)] = true
	}
	for dir := range dirs {
		if err := r.fsys.MkdirAll(path.Join(incomingDir(r.dir), dir)); err != nil {
			return err
		}
	}
	return r.fsys.SyncDir(r.dir)
}

// clear removes the files in incoming that are not listed, and empty directories.
func (r *receiver) clear(listed map[string]bool) error {
	root := incomingDir(r.dir)
	switch err := r.fsys.Remove(path.Join(root, completeName)); {
	case err == nil:
		if err := r.fsys.SyncDir(root); err != nil { // no manifest without its files, also after a crash
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	names, err := r.fsys.List(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		var info fs.FileInfo
		if info, err = r.fsys.Stat(path.Join(root, name)); err == nil && info.IsDir() {
			err = r.clearDir(name, listed)
		} else if err == nil && !listed[name] {
			err = r.fsys.Remove(path.Join(root, name))
		}
		if err != nil {
			break
		}
	}
	return err
}

func (r *receiver) clearDir(dir string, listed map[string]bool) error {
	root := path.Join(incomingDir(r.dir), dir)
	names, err := r.fsys.List(root)
	if err != nil {
		return err
	}
	kept := 0
	for _, name := range names {
		if listed[path.Join(dir, name)] {
			kept++
		} else if err := r.fsys.Remove(path.Join(root, name)); err != nil {
			return err
		}
	}
	if kept > 0 {
		return nil
	}
	return r.fsys.Remove(root)
}

// add receives one file.
func (r *receiver) add(source Source, f File) error {
	here, store := path.Join(incomingDir(r.dir), f.Name), path.Join(r.dir, f.Name)
	var known []uint64
	from := map[uint64]string{}
	for _, name := range []string{store, here} { // what is here already wins
		sum, same, err := r.sum(name, f.Size)
		if err != nil {
			return err
		}
		if same {
			known, from[sum] = append(known, sum), name
		}
	}
	sum, content, err := source.Fetch(r.ctx, f.Name, known)
	if err != nil {
		return err
	}
	r.result.Files = append(r.result.Files, ManifestFile{Name: f.Name, Size: f.Size, Sum: hex64(sum)})
	if content != nil {
		r.result.Copied++
		r.result.CopiedBytes += f.Size
		err := r.transfer.copyToFile(r.ctx, r.fsys, here, content, f.Name, f.Size, sum)
		return errors.Join(err, closeContent(content))
	}
	r.transfer.did(f.Size)
	r.result.Reused++
	r.result.ReusedBytes += f.Size
	switch from[sum] {
	case here:
		return r.sync(here)
	case store:
		return r.copy(store, here, f.Size, sum)
	}
	return kv.Corruptf(f.Name, -1, "it was not sent, although no file here has its checksum %016x", sum)
}

// sum returns the checksum of a file, and false if there is none of that length.
func (r *receiver) sum(name string, size int64) (sum uint64, same bool, err error) {
	f, err := r.fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if n, err := f.Size(); err != nil || n != size {
		return 0, false, err
	}
	done, sum, err := r.local.move(r.ctx, io.Discard, io.NewSectionReader(f, 0, size+1), size)
	return sum, done == size, err
}

// sync syncs a file that an attempt before has copied, perhaps without that.
func (r *receiver) sync(name string) error {
	f, err := r.fsys.OpenReadWrite(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// copy copies a file of the store.
func (r *receiver) copy(from, to string, size int64, sum uint64) (err error) {
	f, err := r.fsys.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.local.copyToFile(r.ctx, r.fsys, to, io.NewSectionReader(f, 0, size+1), from, size, sum)
}

// end syncs the names of all files, and writes the manifest.
func (r *receiver) end() error {
	dirs := map[string]bool{".": true}
	for _, f := range r.result.Files {
		dirs[path.Dir(f.Name)] = true
	}
	for dir := range dirs {
		if err := r.fsys.SyncDir(path.Join(incomingDir(r.dir), dir)); err != nil {
			return err
		}
	}
	b, err := r.result.Encode()
	if err != nil {
		return err
	}
	return vfs.WriteAtomic(r.fsys, path.Join(incomingDir(r.dir), completeName), b)
}
