package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	markerName     = "KVD-BACKUPS"
	marker         = "kvd-backups 1\n"
	lockName       = "LOCK"
	filesName      = "files"
	manifestSuffix = ".backup"
)

// Directory is a directory of backups, as the package comment describes it.
type Directory struct {
	fsys vfs.FS
	dir  string
	lock io.Closer // nil: opened for reading
}

// OpenDirectory opens a directory of backups for reading. Nothing is held, so there is no
// Close.
//
// Errors: kv.ErrInvalidArgument if it is none.
func OpenDirectory(fsys vfs.FS, dir string) (*Directory, error) {
	if err := checkMarker(fsys, dir, markerName, marker, backupsKind); err != nil {
		return nil, err
	}
	return &Directory{fsys: fsys, dir: dir}, nil
}

const backupsKind = "a directory of backups"

// CheckDirectory returns the error for which LockDirectory would not make a directory one of
// backups, because it holds other files, and changes nothing.
func CheckDirectory(fsys vfs.FS, dir string) error {
	return checkEmptyOr(fsys, dir, markerName, backupsKind)
}

// LockDirectory opens a directory of backups for changing it. With create, it is made if it
// does not exist or is empty. The caller closes it.
//
// Errors: vfs.ErrLocked if another process has it locked; those of OpenDirectory.
func LockDirectory(fsys vfs.FS, dir string, create bool) (_ *Directory, err error) {
	d := &Directory{fsys: fsys, dir: dir}
	if create {
		if d.lock, err = lockMarked(fsys, dir, markerName, marker, backupsKind); err != nil {
			return nil, err
		}
		if err := fsys.MkdirAll(path.Join(dir, filesName)); err != nil {
			return nil, errors.Join(err, d.lock.Close())
		}
		return d, nil
	}
	if err := checkMarker(fsys, dir, markerName, marker, backupsKind); err != nil {
		return nil, err
	}
	d.lock, err = lockIn(fsys, dir, backupsKind)
	return d, err
}

// checkMarker returns an error unless a directory has the file that marks it as one of a
// kind.
func checkMarker(fsys vfs.FS, dir, name, content, kind string) error {
	b, err := readFile(fsys, path.Join(dir, name), 1<<10)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is not %s: it has no file %s", kv.ErrInvalidArgument, dir, kind, name)
	case err != nil:
		return err
	case string(b) != content:
		return fmt.Errorf("%w: %s says %q, this kvd knows %q", kv.ErrUnsupportedVersion, path.Join(dir, name), b, content)
	}
	return nil
}

// ErrBusy: a directory is locked. The error also wraps vfs.ErrLocked.
var ErrBusy = errors.New("is being changed by another process")

// lockIn locks a directory.
func lockIn(fsys vfs.FS, dir, kind string) (io.Closer, error) {
	lock, err := fsys.Lock(path.Join(dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s, %s, %w; try again when that has ended: %w", dir, kind, ErrBusy, err)
	}
	return lock, err
}

// lockMarked locks a directory that is marked as one of a kind. It is made, or marked, if it
// does not exist or is empty. Of two processes that do so at once one finds it locked.
func lockMarked(fsys vfs.FS, dir, name, content, kind string) (_ io.Closer, err error) {
	if err := checkEmptyOr(fsys, dir, name, kind); err != nil {
		return nil, err // and no lock is left in it
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	lock, err := lockIn(fsys, dir, kind)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	switch _, err := fsys.Stat(path.Join(dir, name)); {
	case err == nil:
		return lock, checkMarker(fsys, dir, name, content, kind)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if err := checkEmptyOr(fsys, dir, name, kind); err != nil {
		return nil, err
	}
	if err := vfs.SyncParents(fsys, dir); err != nil {
		return nil, err
	}
	return lock, vfs.WriteAtomic(fsys, path.Join(dir, name), []byte(content))
}

// checkEmptyOr returns an error if a directory has files, and not the one that marks it.
func checkEmptyOr(fsys vfs.FS, dir, marker, kind string) error {
	names, err := fsys.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s is a file, or one of its parents is; give a directory", kv.ErrInvalidArgument, dir)
	case err != nil:
		return err
	case slices.Contains(names, marker):
		return nil
	}
	// An earlier attempt may have made some of it.
	for _, name := range names {
		if name != filesName && name != marker+".tmp" && name != lockName && name != "lost+found" {
			return fmt.Errorf("%w: %s is not %s, and holds other files, such as %s; give a new or empty directory",
				kv.ErrInvalidArgument, dir, kind, name)
		}
	}
	return nil
}

// Close unlocks the directory.
func (d *Directory) Close() error {
	if d.lock == nil {
		return nil
	}
	return d.lock.Close()
}

// IDs returns the ids of the backups, oldest first. A file whose name is not an id is not
// kvd's and is ignored.
func (d *Directory) IDs() ([]string, error) {
	names, err := d.fsys.List(d.dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, manifestSuffix); ok && IsID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Load returns the manifest of a backup; an empty id is the newest one.
func (d *Directory) Load(id string) (*Manifest, error) {
	if id == "" {
		ids, err := d.IDs()
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("%w: %s holds no complete backup", kv.ErrInvalidArgument, d.dir)
		}
		id = ids[len(ids)-1]
	}
	name := d.manifestPath(id)
	m, err := readManifest(d.fsys, name)
	if err == nil && m.ID != id {
		err = kv.Corruptf(name, 0, "it is the manifest of backup %s", m.ID)
	}
	return m, err
}

// LoadBefore returns the manifest of the newest backup of at most a version. It passes over backups
// whose manifest is damaged, which may be of such a version too, and skipped says which. An older backup
// leads to the same store, by more of the archive.
//
// Errors: kv.ErrInvalidArgument if all are newer; a *kv.CorruptionError if no other can be read, or all
// others are newer; those of Load.
func (d *Directory) LoadBefore(version kv.SeqNum) (m *Manifest, skipped, err error) {
	ids, err := d.IDs()
	if err != nil {
		return nil, nil, err
	}
	if len(ids) == 0 {
		_, err := d.Load("") // the error that there is none
		return nil, nil, err
	}
	for _, id := range slices.Backward(ids) {
		next, err := d.Load(id)
		switch {
		case errors.Is(err, kv.ErrCorrupt):
			skipped = errors.Join(skipped, err)
			continue
		case err != nil:
			return nil, skipped, err
		case next.Version <= version:
			return next, skipped, nil
		}
		m, skipped = next, nil // the damaged ones are of this version or a later one
	}
	if skipped != nil {
		return nil, nil, skipped
	}
	return nil, nil, fmt.Errorf("%w: version %d is older than the oldest backup in %s, which is of version %d", kv.ErrInvalidArgument, version, d.dir, m.Version)
}

// Manifests returns those of all backups, oldest first, and what is wrong with those that
// cannot be read.
func (d *Directory) Manifests() (all []*Manifest, damaged error) {
	ids, err := d.IDs()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		m, err := d.Load(id)
		if err != nil {
			damaged = errors.Join(damaged, err)
			continue
		}
		all = append(all, m)
	}
	return all, damaged
}

func (d *Directory) manifestPath(id string) string { return path.Join(d.dir, id+manifestSuffix) }

// storedName returns the name of a file in the directory files.
func storedName(name string, sum uint64) string {
	return fmt.Sprintf("%s.%016x", strings.ReplaceAll(name, "/", "-"), sum)
}

// parseStored takes the name of a file in the directory files apart; ok is false if kvd
// writes no such name.
func parseStored(name string) (prefix string, sum uint64, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", 0, false
	}
	sum, err := strconv.ParseUint(name[dot+1:], 16, 64)
	prefix = name[:dot]
	return prefix, sum, err == nil && storedName(prefix, sum) == name
}

func (d *Directory) filePath(f *ManifestFile) string {
	return path.Join(d.dir, filesName, storedName(f.Name, uint64(f.Sum)))
}

// Result is what Create did.
type Result struct {
	*Manifest
	Copied, Reused           int // files
	CopiedBytes, ReusedBytes int64
}

// Create makes a backup of the source. What an interrupted attempt has copied is not copied
// again.
//
// Errors: kv.ErrInvalidArgument if the directory has backups of another store; those of the
// source and of the directory's file system. Earlier backups are as they were.
func (d *Directory) Create(ctx context.Context, source Source, now time.Time, o Options) (*Result, error) {
	info := source.Info()
	// The files of a backup whose manifest is damaged are verified like those of one that
	// was interrupted.
	earlier, _ := d.Manifests()
	if err := d.checkStore(earlier, hex64(info.StoreID)); err != nil {
		return nil, err
	}
	stored, err := d.stored(earlier)
	if err != nil {
		return nil, err
	}
	id, err := d.nextID(now)
	if err != nil {
		return nil, err
	}
	r := &Result{Manifest: &Manifest{Format: formatWith(o.Digest), Digest: o.Digest, ID: id, Store: hex64(info.StoreID), Version: info.Version}}
	total := int64(0)
	for _, f := range info.Files {
		if err := checkName(f.Name); err != nil {
			return nil, err
		}
		total += f.Size
	}
	t := newTransfer(o, total)
	for _, f := range info.Files {
		known, err := d.known(ctx, stored, f, o.Rate)
		if err != nil {
			return nil, err
		}
		sum, content, err := source.Fetch(ctx, f.Name, known)
		if err != nil {
			return nil, fmt.Errorf("back up %s: %w", f.Name, err)
		}
		entry := ManifestFile{Name: f.Name, Size: f.Size, Sum: hex64(sum)}
		if content == nil {
			t.did(f.Size)
			r.Reused++
			r.ReusedBytes += f.Size
		} else {
			err := t.copyToFile(ctx, d.fsys, d.filePath(&entry), content, f.Name, f.Size, sum)
			if err = errors.Join(err, closeContent(content)); err != nil {
				return nil, fmt.Errorf("back up %s: %w", f.Name, err)
			}
			r.Copied++
			r.CopiedBytes += f.Size
		}
		r.Files = append(r.Files, entry)
	}
	if err := d.fsys.SyncDir(path.Join(d.dir, filesName)); err != nil {
		return nil, err
	}
	b, err := r.Encode()
	if err != nil {
		return nil, err
	}
	return r, vfs.WriteAtomic(d.fsys, d.manifestPath(id), b)
}

// checkStore returns an error if a backup is of another store: Restore takes the newest
// backup and Prune keeps the newest, which must not depend on another store's schedule.
func (d *Directory) checkStore(earlier []*Manifest, store hex64) error {
	for _, m := range earlier {
		if m.Store != store {
			return fmt.Errorf("%w: %s holds backups of the store %016x, and this is the store %016x; give each store a directory of its own",
				kv.ErrInvalidArgument, d.dir, uint64(m.Store), uint64(store))
		}
	}
	return nil
}

// nextID returns an id that sorts after those of all backups.
func (d *Directory) nextID(now time.Time) (string, error) {
	ids, err := d.IDs()
	if err != nil {
		return "", err
	}
	now = now.UTC().Truncate(time.Millisecond)
	if len(ids) > 0 {
		if last, err := time.Parse(idLayout, ids[len(ids)-1]); err == nil && !now.After(last) {
			now = last.Add(time.Millisecond)
		}
	}
	return now.Format(idLayout), nil
}

// storedFile is a file in the directory files.
type storedFile struct {
	name  string
	sum   uint64
	whole bool // a manifest names it, so it was whole and synced then
}

// stored returns the files that there are by the part of their names before the checksum.
func (d *Directory) stored(manifests []*Manifest) (map[string][]storedFile, error) {
	named := map[string]bool{}
	for _, m := range manifests {
		for i := range m.Files {
			named[storedName(m.Files[i].Name, uint64(m.Files[i].Sum))] = true
		}
	}
	names, err := d.fsys.List(path.Join(d.dir, filesName))
	if err != nil {
		return nil, err
	}
	all := map[string][]storedFile{}
	for _, name := range names {
		if prefix, sum, ok := parseStored(name); ok {
			all[prefix] = append(all[prefix], storedFile{name, sum, named[name]})
		}
	}
	return all, nil
}

// known returns the checksums with which the directory has a file of that name and length. It
// reads the file: one that was damaged since would be part of the new backup, too.
func (d *Directory) known(ctx context.Context, stored map[string][]storedFile, f File, rate int64) (sums []uint64, err error) {
	for _, s := range stored[strings.ReplaceAll(f.Name, "/", "-")] {
		name := path.Join(d.dir, filesName, s.name)
		info, err := d.fsys.Stat(name)
		if err != nil || info.Size() != f.Size {
			continue
		}
		if err := d.verifyStored(ctx, name, f.Size, s, rate); errors.Is(err, kv.ErrCorrupt) {
			continue
		} else if err != nil {
			return nil, err
		}
		sums = append(sums, s.sum)
	}
	return sums, nil
}

// silence is the time for which the source of a backup is left waiting while a file is
// verified: a server ends a backup whose client is silent for 30 s.
const silence = 10 * time.Second

// verifyStored verifies a file, and syncs one that an interrupted backup left. It reads at the
// rate of the backup, if any, or faster so that the source does not wait for longer than silence.
func (d *Directory) verifyStored(ctx context.Context, name string, size int64, s storedFile, rate int64) error {
	if rate > 0 {
		rate = max(rate, size/int64(silence/time.Second))
	}
	if err := newTransfer(Options{Rate: rate}, 0).verifyFile(ctx, d.fsys, name, size, s.sum); err != nil || s.whole {
		return err
	}
	f, err := d.fsys.OpenReadWrite(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Verify reads every file of the backups and compares the checksums. It continues after
// damage.
//
// Errors: all *kv.CorruptionError that were found, joined, each with the backups that need the file;
// else what a read returned.
func (d *Directory) Verify(ctx context.Context, manifests []*Manifest, o Options) error {
	files := map[string]*ManifestFile{}
	needed := map[string][]string{} // the ids of the backups that need a file
	total := int64(0)
	for _, m := range manifests {
		for i := range m.Files {
			f := &m.Files[i]
			name := d.filePath(f)
			if files[name] == nil {
				files[name] = f
				total += f.Size
			}
			needed[name] = append(needed[name], m.ID)
		}
	}
	t := newTransfer(o, total)
	var damage []error
	for _, m := range manifests {
		for i := range m.Files {
			name := d.filePath(&m.Files[i])
			f := files[name]
			if f == nil {
				continue // verified for another backup
			}
			files[name] = nil
			err := t.verifyFile(ctx, d.fsys, name, f.Size, uint64(f.Sum))
			if err != nil && !errors.Is(err, kv.ErrCorrupt) {
				return err
			}
			if err != nil {
				damage = append(damage, fmt.Errorf("%w, in %s", err, backupsNamed(needed[name])))
			}
		}
	}
	return errors.Join(damage...)
}

// backupsNamed names some of the backups with these ids.
func backupsNamed(ids []string) string {
	const most = 5
	ids = slices.Compact(ids)
	switch n := len(ids); {
	case n == 1:
		return "backup " + ids[0]
	case n > most:
		return fmt.Sprintf("%d backups, from %s to %s", n, ids[0], ids[n-1])
	}
	return "backups " + strings.Join(ids, ", ")
}

// Pruned is what Prune removed.
type Pruned struct {
	Backups []string
	Files   int
	Bytes   int64
}

// Prune removes all backups but the newest keep, and then every file that no backup needs,
// also what interrupted backups left, among it their manifests. Files with names that kvd does not write stay.
//
// Errors: a *kv.CorruptionError if the manifest of a backup that stays cannot be read, since
// then it is unknown which files it needs: nothing was removed.
func (d *Directory) Prune(keep int) (p Pruned, err error) {
	if keep < 1 {
		return p, fmt.Errorf("%w: keep %d backups, want at least 1", kv.ErrInvalidArgument, keep)
	}
	ids, err := d.IDs()
	if err != nil {
		return p, err
	}
	old := ids[:max(0, len(ids)-keep)]
	needed := map[string]bool{}
	for _, id := range ids[len(old):] {
		m, err := d.Load(id)
		if err != nil {
			return p, fmt.Errorf("nothing was removed, since it is unknown which files backup %s needs; if it is of no use, remove its manifest: %w", id, err)
		}
		for i := range m.Files {
			needed[storedName(m.Files[i].Name, uint64(m.Files[i].Sum))] = true
		}
	}
	// The process that wrote the newest manifest may have been killed before it synced the name.
	if err := d.fsys.SyncDir(d.dir); err != nil {
		return p, err
	}
	for _, id := range old {
		if err := d.fsys.Remove(d.manifestPath(id)); err != nil {
			return p, err
		}
		p.Backups = append(p.Backups, id)
	}
	// The manifests are gone for good before their files go (B1).
	if err := d.fsys.SyncDir(d.dir); err != nil {
		return p, err
	}
	names, err := d.fsys.List(path.Join(d.dir, filesName))
	if err != nil {
		return p, err
	}
	for _, name := range names {
		if _, _, ours := parseStored(name); !ours || needed[name] {
			continue
		}
		if err := d.prune(path.Join(d.dir, filesName, name), &p); err != nil {
			return p, err
		}
	}
	if names, err = d.fsys.List(d.dir); err != nil {
		return p, err
	}
	for _, name := range names { // what vfs.WriteAtomic leaves of a manifest if the process is killed in it
		if id, ok := strings.CutSuffix(name, manifestSuffix+".tmp"); !ok || !IsID(id) {
			continue
		}
		if err := d.prune(path.Join(d.dir, name), &p); err != nil {
			return p, err
		}
	}
	return p, nil
}

// prune removes a file and counts it.
func (d *Directory) prune(name string, p *Pruned) error {
	info, err := d.fsys.Stat(name)
	if err == nil {
		err = d.fsys.Remove(name)
	}
	if err != nil {
		return err
	}
	p.Files++
	p.Bytes += info.Size()
	return nil
}
