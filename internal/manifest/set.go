package manifest

import (
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Set keeps the current Version of one partition, on disk and in memory, and
// knows which older Versions are still being read. Safe for concurrent use. It holds
// no file open, so it has no Close.
//
// S1. A Version that Install acknowledged is current after any crash, whole.
//
// S2. A file, table or value file, exists as long as the current Version or a Ref
// names it, and is removed once, after a manifest without it is durable.
//
// S3. A number is handed out once in the life of the partition.
//
// S4. After an attempt to publish failed, every later one fails with
// kv.ErrFailed, unless the disk had no space for it and CURRENT is unchanged: then the
// edit did not happen. Reading continues.
type Set struct {
	opts Options

	// publishing is held while a manifest is written. It is locked before mu.
	publishing sync.Mutex
	failed     error // S4; guarded by publishing

	mu struct {
		sync.Mutex
		current *Version
		next    kv.FileNum         // the next number to hand out
		refs    map[*Version]int   // references to each live Version; being current counts as one
		files   map[kv.FileNum]int // in how many live Versions a table or value file is
	}
}

// Options configure a Set.
type Options struct {
	FS        vfs.FS
	Dir       string // of the partition
	Partition uint32
	// Obsolete is called once for each FileTable and FileValues that no live Version
	// names any more, after that is durable. It closes readers, drops cached blocks and
	// removes the file; if the file stays, the next Open removes it. It runs on the
	// goroutine of Install or Release with no lock held, so it should pass slow
	// work to another goroutine. Required.
	Obsolete func(FileKind, kv.FileNum)
	// Listener may be nil.
	Listener *event.Listener
	// ReadOnly leaves the directory unchanged. The caller installs nothing.
	ReadOnly bool
	// AllowDamaged opens the Version although tables or value files may be missing or have
	// another size.
	AllowDamaged bool
}

// Open loads the current Version, cleans the directory up, and returns the
// Set. Create must have made the partition.
//
// Errors: as of Load. They leave the directory unchanged.
func Open(opts Options) (*Set, error) {
	v, err := LoadVersion(opts.FS, opts.Dir, opts.Partition)
	if err == nil && !opts.AllowDamaged {
		err = v.checkFiles(opts.FS, opts.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open partition %d: %w", opts.Partition, err)
	}
	var largest kv.FileNum
	if !opts.ReadOnly {
		// The process that published what Load read may have been killed before it synced
		// the name. Until the name is synced nothing may depend on it, and no file may be removed.
		if err := opts.FS.SyncDir(opts.Dir); err != nil {
			return nil, fmt.Errorf("open partition %d: %w", opts.Partition, err)
		}
		if largest, err = clean(opts.FS, opts.Dir, v, v.isMissing(opts.FS, opts.Dir), opts.Listener); err != nil {
			return nil, fmt.Errorf("open partition %d: %w", opts.Partition, err)
		}
	}
	s := &Set{opts: opts}
	s.mu.refs = make(map[*Version]int)
	s.mu.files = make(map[kv.FileNum]int)
	s.mu.next = max(v.NextFile, largest+1)
	s.publishLocked(v)
	return s, nil
}

// Acquire returns the current Version, whose files stay until Release. Cost: a short
// mutex.
func (s *Set) Acquire() *Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.refs[s.mu.current]++
	return &Ref{Version: s.mu.current, set: s}
}

// Verify reads CURRENT and the current manifest again and compares them with the current
// Version. No Version is published meanwhile. After a failed publication (S4) it does
// nothing, because the disk may then be ahead.
func (s *Set) Verify() error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if s.failed != nil {
		return nil
	}
	v, err := LoadVersion(s.opts.FS, s.opts.Dir, s.opts.Partition)
	if err != nil {
		return err
	}
	if v.Num != s.currentVersion().Num {
		return kv.Corruptf(path.Join(s.opts.Dir, CurrentName), -1, "names %s, which is not the current version", ManifestName(v.Num))
	}
	return nil
}

// NewFileNum returns a number that no file of the partition ever had.
//
// Errors: as of Install. Cost: usually nothing; once in about a thousand
// numbers, and first after Open, it writes a manifest.
func (s *Set) NewFileNum() (kv.FileNum, error) {
	for {
		if num, ok := s.reserved(); ok {
			return num, nil
		}
		if err := s.reserve(); err != nil {
			return 0, err
		}
	}
}

// reserve raises the ceiling, unless another goroutine just did.
func (s *Set) reserve() error {
	s.publishing.Lock()
	next := *s.currentVersion()
	var done superseded
	var err error
	if s.exhausted() {
		done, err = s.publish(&next)
	}
	s.publishing.Unlock()
	s.discard(done)
	return err
}

func (s *Set) exhausted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.next >= s.mu.current.NextFile
}

// reserved returns a new number below the ceiling, if there is one.
func (s *Set) reserved() (kv.FileNum, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.next >= s.mu.current.NextFile {
		return 0, false
	}
	s.mu.next++
	return s.mu.next - 1, true
}

// Install makes the edit durable and then visible to Acquire. The new tables
// must be complete and synced; Install makes their names durable by its own sync of the
// directory. Edits are installed one after the other.
//
// Errors: if the edit does not fit the current Version, or one of its tables does
// not exist, nothing has changed and the tables may be removed. An error that
// wraps kv.ErrFailed is final (S4): then the disk may hold the new Version, so
// no file may be removed.
// Durability: after nil the edit survives a power cut.
func (s *Set) Install(e Edit) error {
	s.publishing.Lock()
	done, err := s.install(e)
	s.publishing.Unlock()
	s.discard(done)
	return err
}

func (s *Set) install(e Edit) (superseded, error) {
	if s.failed != nil {
		return superseded{}, s.failed
	}
	next, err := s.currentVersion().Apply(e)
	if err != nil {
		return superseded{}, err
	}
	for i := range e.Added {
		if err := s.checkNew(TableName(e.Added[i].Num), e.Added[i].Size); err != nil {
			return superseded{}, fmt.Errorf("install %s: %w", e.Kind, err)
		}
	}
	for i := range e.Values {
		if err := s.checkNew(ValuesName(e.Values[i].Num), e.Values[i].Size); err != nil {
			return superseded{}, fmt.Errorf("install %s: %w", e.Kind, err)
		}
	}
	return s.publish(next)
}

// checkNew returns an error unless a new file exists and is complete.
func (s *Set) checkNew(name string, size uint64) error {
	info, err := s.opts.FS.Stat(path.Join(s.opts.Dir, name))
	if err == nil && info.Size() != int64(size) {
		err = fmt.Errorf("new file %s has %d bytes, want %d", name, info.Size(), size)
	}
	return err
}

func (s *Set) currentVersion() *Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.current
}

// superseded holds the files to discard after a publication or a release.
type superseded struct {
	manifest kv.FileNum // 0: none
	files    []obsolete
}

// obsolete is a file that no live Version names any more.
type obsolete struct {
	kind FileKind
	num  kv.FileNum
}

// discard removes superseded files; the caller holds no lock.
func (s *Set) discard(done superseded) {
	if done.manifest != 0 {
		if err := s.opts.FS.Remove(path.Join(s.opts.Dir, ManifestName(done.manifest))); err != nil {
			backgroundError(s.opts.Listener, fmt.Errorf("remove an old manifest, tried again at the next open: %w", err))
		}
	}
	for _, f := range done.files {
		s.opts.Obsolete(f.kind, f.num)
	}
}

// publish assigns its numbers to a Version that is not visible yet, writes it and
// makes it current. The caller holds publishing.
func (s *Set) publish(next *Version) (superseded, error) {
	if s.failed != nil {
		return superseded{}, s.failed
	}
	s.mu.Lock()
	old := s.mu.current
	next.Num = s.mu.next
	s.mu.next++
	next.NextFile = s.mu.next + reservedNums
	s.mu.Unlock()

	if err := publish(s.opts.FS, s.opts.Dir, next); err != nil {
		if vfs.CannotWrite(err) && !errors.Is(err, vfs.ErrReplaced) {
			// CURRENT is unchanged, and so is everything that it names.
			return superseded{}, fmt.Errorf("publish %s of partition %d: %w", ManifestName(next.Num), next.Partition,
				errors.Join(err, vfs.RemoveIfThere(s.opts.FS, path.Join(s.opts.Dir, ManifestName(next.Num)))))
		}
		s.failed = fmt.Errorf("%w: publish %s of partition %d, reopen the store to continue: %w",
			kv.ErrFailed, ManifestName(next.Num), next.Partition, err)
		return superseded{}, s.failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked(next)
	return superseded{manifest: old.Num, files: s.releaseLocked(old)}, nil
}

// publishLocked makes v current.
func (s *Set) publishLocked(v *Version) {
	s.mu.current = v
	s.mu.refs[v] = 1
	for _, num := range v.Files() {
		s.mu.files[num]++
	}
}

// releaseLocked drops one reference to v and returns the files that are obsolete after
// the last one.
func (s *Set) releaseLocked(v *Version) []obsolete {
	s.mu.refs[v]--
	if s.mu.refs[v] > 0 {
		return nil
	}
	delete(s.mu.refs, v)
	var gone []obsolete
	for kind, num := range v.Files() {
		s.mu.files[num]--
		if s.mu.files[num] == 0 {
			delete(s.mu.files, num)
			gone = append(gone, obsolete{kind, num})
		}
	}
	return gone
}

// Ref keeps a Version's files from being removed.
type Ref struct {
	// Version must not be used after Release.
	*Version
	set *Set
}

// Release ends the use of the Version. Call it exactly once per Ref; a second call
// panics. The last one may call Options.Obsolete.
func (r *Ref) Release() {
	r.set.mu.Lock()
	v := r.Version
	r.Version = nil
	if v == nil {
		r.set.mu.Unlock()
		panic("manifest: Ref released twice")
	}
	gone := r.set.releaseLocked(v)
	r.set.mu.Unlock()
	r.set.discard(superseded{files: gone})
}
