package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/internal/verify"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// maxCheckpoints is how many checkpoints may be open: one for a backup and some for copies
// of the store. Guessed.
const maxCheckpoints = 4

// errCheckpointEnded is why a checkpoint ended on a full disk.
var errCheckpointEnded = fmt.Errorf("%w: the disk is nearly full, so the checkpoint gave back the files that it held; "+
	"free space, then begin again", kv.ErrVersionGone)

// Checkpoint is one version of the whole store as a set of files that do not change: the
// tables and value files of all partitions, their manifests, the log up to the version,
// STORE and CLOCK. A directory with these files is a store with the contents of that
// version. It is meant for backups, and for copies of the store on other machines.
//
// The copy is a life of its own: it is opened with an epoch of its own, and its log skips
// numbers as after a crash, so a version that a client has read in one store, and that may
// mean other data in the other, is refused: see checkReadVersion. The log holds the request
// ids of recent writes, so the copy recognises a write that is sent again as the store
// would after a crash.
//
// K1. Every write acknowledged before Checkpoint began is in it, and of every batch and
// transaction all or nothing.
//
// K2. The bytes of a file are the same at each reading, until Release.
//
// K3. For ten seconds, or until Release, LookupAt and Scan can read at the version, unless all
// snapshots were taken. A scan that has begun goes on.
//
// K4. While a checkpoint is open, compaction deletes none of its files, and no segment of
// the log is deleted. The engine ends it when the disk gets too full for writes, and when
// clients delete on a full disk, because the space of these files is needed. If it is still being
// made then, the call that makes it returns the reason.
//
// K5. What Fetch and the readers that it returns read keeps to one rate, over all goroutines, as a
// pace.Bucket says. A table or value file is read twice: to be verified, with which its checksum is
// computed, and to be sent. A segment of the log is read once more, for the checksum.
//
// Safe for concurrent use.
type Checkpoint struct {
	e       *Engine
	version kv.SeqNum
	began   time.Time
	files   []backup.File
	parts   map[string]checkpointPart // by name
	pace    *pace.Bucket
	life    context.Context // until Release
	end     context.CancelFunc

	mu       sync.Mutex
	released error // why it cannot be read any more; nil: it can
	hold     *wal.Hold
	refs     []*manifest.Ref
	snapshot uint64 // of the version; 0: none
}

// checkpointPart is the content of one file; one of the fields after size is set.
type checkpointPart struct {
	size   int64
	data   []byte                              // of a small file
	log    *wal.SnapshotFile                   // of the log
	verify func(context.Context, vfs.FS) error // a table or value file, which is the one that the manifest names
}

// checkpoints are those that are open, and what is known of files that never change.
type checkpoints struct {
	mu     sync.Mutex
	closed bool // the engine is closed
	open   []*Checkpoint
	sums   map[string]uint64 // of tables and value files that were verified, by name
}

// Checkpoint returns a version of the whole store as files. The caller calls Release. Its files are
// read with at most rate bytes per second; 0 means no bound.
//
// Writers are not stopped. It takes the mutex of each partition's manifest and of the log
// for a moment, one after the other, and waits for one sync of the log. It reads the frames
// of one segment of the log, and keeps in memory the manifests and at most one frame of the
// log. It does not wait for the rate, because clients wait for it: the first Fetch does.
//
// A member of a cluster makes a checkpoint that is the store of a single node: the log has what
// the tables lack, and no more request ids than that. It flushes all partitions first.
//
// Errors: *kv.OverloadError if too many are open, or a member takes more writes than it can
// flush meanwhile; kv.ErrReadOnly if the store was opened
// read-only; kv.ErrVersionGone if the engine ended it meanwhile (K4); kv.ErrClosed; the error of the
// log after a failure.
func (e *Engine) Checkpoint(ctx context.Context, rate int64) (*Checkpoint, error) {
	defer e.events.Guard()
	switch {
	case e.closed.Load():
		return nil, kv.ErrClosed
	case e.Err() != nil:
		return nil, e.Err()
	case e.opts.ReadOnly:
		return nil, fmt.Errorf("checkpoint: %w", errOpenedToRead)
	case e.member != nil:
		return e.member.checkpointAlone(ctx, rate)
	}
	c, err := e.newCheckpoint(rate)
	if err != nil {
		return nil, err
	}
	return c.made(c.collect(ctx))
}

// collect adds the files of a node that is alone.
func (c *Checkpoint) collect(ctx context.Context) error {
	e := c.e
	// The order matters. What the log holds from here on stays. The files of each partition
	// hold only what was visible when they were written, so they hold nothing above a
	// visible number that is read later, and everything else up to that is in the log.
	hold := e.log.Hold()
	versions, err := c.keep(hold)
	if err != nil {
		return err
	}
	if err := e.sequencer.WaitVisible(ctx, e.acknowledged()); err != nil {
		return err
	}
	if c.version, err = c.chooseVersion(ctx); err != nil {
		return err
	}
	if err := e.log.WaitSynced(ctx, e.log.End()); err != nil {
		return err
	}
	log, err := hold.Snapshot(ctx, c.version)
	if err != nil {
		return err
	}
	c.pace.Owe(log[len(log)-1].Size)
	// CLOCK is read after the version: its bound is above every time at which an expiry up
	// to the version was decided.
	clock, err := descriptor.ReadClock(e.opts.FS, e.dir, e.descriptor.StoreID)
	switch {
	case err == nil:
		c.addData(descriptor.ClockName, clock.Encode())
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	c.addData(descriptor.Name, e.descriptor.Encode())
	for _, v := range versions {
		c.addPartition(v)
	}
	c.addLog(log)
	return nil
}

// newCheckpoint registers a checkpoint that has no files yet.
func (e *Engine) newCheckpoint(rate int64) (*Checkpoint, error) {
	c := &Checkpoint{e: e, began: time.Now(), parts: make(map[string]checkpointPart), pace: pace.New(rate)}
	c.life, c.end = context.WithCancel(context.Background())
	if err := e.checkpoints.add(c); err != nil {
		return nil, err
	}
	return c, nil
}

// made returns the checkpoint, to which all files were added unless err says why not. If it has
// ended meanwhile, that is the error: err may come of files that were deleted after it. A
// checkpoint can end from newCheckpoint on, so what the calls until made acquire for it is
// registered under mu, and released at once if it has ended: see keep and chooseVersion.
func (c *Checkpoint) made(err error) (*Checkpoint, error) {
	if ended := c.Err(); ended != nil {
		return nil, ended
	}
	if err != nil {
		c.Release()
		return nil, err
	}
	return c, nil
}

// chooseVersion returns the version of the checkpoint. It can be read for ten seconds, so that
// a client can compute the digest of what it backs up; but not if all snapshots are taken.
// For longer it would make compactions keep old values.
func (c *Checkpoint) chooseVersion(ctx context.Context) (kv.SeqNum, error) {
	s, err := c.e.BeginSnapshot(ctx, defaultLease)
	switch {
	case errors.Is(err, kv.ErrOverloaded), errors.Is(err, kv.ErrReadOnly):
		return c.e.sequencer.Visible(), nil
	case err != nil:
		return 0, err
	}
	c.mu.Lock()
	ended := c.released
	if ended == nil {
		c.snapshot = s.ID
	}
	c.mu.Unlock()
	if ended != nil {
		c.e.snapshots.end(s.ID)
	}
	return s.Version, ended
}

// add registers a checkpoint, unless there are too many.
func (s *checkpoints) add(c *Checkpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return kv.ErrClosed
	}
	if len(s.open) >= maxCheckpoints {
		return &kv.OverloadError{Reason: "checkpoints", RetryAfter: time.Second}
	}
	s.open = append(s.open, c)
	return nil
}

// close releases all checkpoints and lets no other begin.
func (s *checkpoints) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(kv.ErrClosed)
}

// end releases all checkpoints, and makes reads of them fail with err.
func (s *checkpoints) end(err error) {
	s.mu.Lock()
	open := slices.Clone(s.open)
	s.mu.Unlock()
	for _, c := range open {
		c.release(err)
	}
}

// oldest returns how many checkpoints are open, and the age of the oldest.
func (s *checkpoints) oldest() (count int, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 {
		age = time.Since(s.open[0].began)
	}
	return len(s.open), age
}

// sumOf returns the checksum of a file that was verified before.
func (s *checkpoints) sumOf(name string) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum, ok := s.sums[name]
	return sum, ok
}

// verified notes the checksum of a table or value file of c. It forgets those that c does
// not have, so that there are no more than files.
func (s *checkpoints) verified(c *Checkpoint, name string, sum uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sums == nil {
		s.sums = make(map[string]uint64)
	}
	if len(s.sums) >= len(c.parts) {
		for other := range s.sums {
			if _, ok := c.parts[other]; !ok {
				delete(s.sums, other)
			}
		}
	}
	s.sums[name] = sum
}

func (c *Checkpoint) add(name string, size int64, part checkpointPart) {
	c.files = append(c.files, backup.File{Name: name, Size: size})
	part.size = size
	c.parts[name] = part
}

func (c *Checkpoint) addData(name string, data []byte) {
	c.add(name, int64(len(data)), checkpointPart{data: data})
}

func (c *Checkpoint) addPartition(v *manifest.Version) {
	dir := path.Base(descriptor.PartitionDir(c.e.dir, int(v.Partition)))
	name, data, current := v.Encode()
	c.addData(path.Join(dir, name), data)
	c.addData(path.Join(dir, manifest.CurrentName), current)
	root := c.e.dir
	ignore := func(int64) {}
	for t := range v.Tables() {
		name := path.Join(dir, manifest.TableName(t.Num))
		c.add(name, int64(t.Size), checkpointPart{verify: func(ctx context.Context, fsys vfs.FS) error {
			return verify.Table(ctx, fsys, path.Join(root, name), v.Partition, t, ignore, nil)
		}})
	}
	for i := range v.Values {
		m := &v.Values[i]
		name := path.Join(dir, manifest.ValuesName(m.Num))
		c.add(name, int64(m.Size), checkpointPart{verify: func(ctx context.Context, fsys vfs.FS) error {
			return verify.Values(ctx, fsys, path.Join(root, name), v.Partition, m, ignore)
		}})
	}
}

func (c *Checkpoint) addLog(segments []wal.SnapshotFile) {
	for i := range segments {
		s := &segments[i]
		c.add(path.Join(descriptor.LogName, s.Name), s.Size, checkpointPart{log: s})
	}
}

// keep keeps the files of all partitions as they are now, and takes over what keeps the log, until
// the checkpoint is released. It fails if that was before. The versions stay valid, as they never
// change; their files may be deleted after the release.
func (c *Checkpoint) keep(hold *wal.Hold) (versions []*manifest.Version, err error) {
	c.mu.Lock()
	c.hold, err = hold, c.released
	for i := 0; err == nil && i < len(c.e.partitions); i++ {
		ref := c.e.partitions[i].AcquireFiles()
		c.refs, versions = append(c.refs, ref), append(versions, ref.Version)
	}
	c.mu.Unlock()
	if err != nil {
		c.letGo()
	}
	return versions, err
}

// Info implements backup.Source.
func (c *Checkpoint) Info() backup.Info {
	return backup.Info{StoreID: c.e.descriptor.StoreID, Version: c.version, Files: c.files}
}

// Fetch implements backup.Source. Before the first reading of a file, every checksum in it
// is verified, so damage is reported and never copied. ctx also ends the reading of the content.
//
// Errors: kv.ErrClosed, or kv.ErrVersionGone, if the checkpoint has ended.
func (c *Checkpoint) Fetch(ctx context.Context, name string, known []uint64) (sum uint64, content io.Reader, err error) {
	defer c.e.events.Guard()
	part, ok := c.parts[name]
	if !ok {
		return 0, nil, fmt.Errorf("%w: the checkpoint has no file %q", kv.ErrInvalidArgument, name)
	}
	sum, seen := c.e.checkpoints.sumOf(name)
	if !seen || part.verify == nil {
		if sum, err = c.check(ctx, name, part); err != nil {
			if errors.Is(err, kv.ErrCorrupt) {
				c.e.corrupt(err)
			}
			return 0, nil, err
		}
		if part.verify != nil {
			c.e.checkpoints.verified(c, name, sum)
		}
	}
	if slices.Contains(known, sum) {
		return sum, nil, nil
	}
	r, err := c.open(ctx, name)
	if err != nil {
		return 0, nil, err
	}
	return sum, &closingReader{r: io.NewSectionReader(r, 0, part.size), of: r}, nil
}

// readAtCloser is an open file of a checkpoint.
type readAtCloser interface {
	io.ReaderAt
	io.Closer
}

// open opens a file for reading, until ctx ends. What is open stays readable after Release.
func (c *Checkpoint) open(ctx context.Context, name string) (readAtCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released != nil {
		return nil, c.released
	}
	switch part := c.parts[name]; {
	case part.log != nil:
		return part.log.Through(c.paced(ctx)).Open()
	case part.data != nil:
		return memoryFile{bytes.NewReader(part.data)}, nil
	}
	return c.pace.Reads(ctx, c.e.opts.FS).Open(path.Join(c.e.dir, name))
}

// paced returns a function that has what is read of a file system keep to the rate.
func (c *Checkpoint) paced(ctx context.Context) func(vfs.FS) vfs.FS {
	return func(fsys vfs.FS) vfs.FS { return c.pace.Reads(ctx, fsys) }
}

// check verifies every checksum in a file, and returns that of the whole file. It ends soon after
// Release: a file that is open takes space, and the rate may be low.
func (c *Checkpoint) check(ctx context.Context, name string, part checkpointPart) (_ uint64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(c.Err()) })()
	defer func() {
		if ended := c.Err(); ended != nil { // then the file may have been deleted
			err = ended
		}
	}()
	s := &summing{FS: c.pace.Reads(ctx, c.e.opts.FS), sum: backup.NewSum()}
	switch {
	case part.log != nil:
		if err := part.log.Through(c.paced(ctx)).Verify(ctx); err != nil {
			return 0, err
		}
	case part.verify != nil:
		if err := part.verify(ctx, s); err != nil {
			return 0, err
		}
	}
	return c.sum(ctx, name, part.size, s)
}

// sum returns the checksum of a file, of which a beginning may have been added up.
func (c *Checkpoint) sum(ctx context.Context, name string, size int64, s *summing) (_ uint64, err error) {
	r, err := c.open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	buf := make([]byte, min(max(size-s.end, 0), 256<<10))
	for s.end < size {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-s.end)], s.end)
		if n == 0 {
			return 0, fmt.Errorf("read %s at offset %d: %w", name, s.end, err)
		}
		s.add(buf[:n], s.end)
	}
	return s.sum.Sum64(), nil
}

// summing is a file system that adds up the bytes of the one file that is opened by it, as far as
// they are read from the beginning on without a gap. It is used by one goroutine.
type summing struct {
	vfs.FS
	sum hash.Hash64
	end int64 // of what is added up
}

// add adds up what was read at an offset.
func (s *summing) add(b []byte, off int64) {
	if end := off + int64(len(b)); off <= s.end && s.end < end {
		_, _ = s.sum.Write(b[s.end-off:]) // a hash does not fail
		s.end = end
	}
}

// Open implements vfs.FS.
func (s *summing) Open(name string) (vfs.File, error) {
	f, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &summingFile{File: f, to: s}, nil
}

type summingFile struct {
	vfs.File
	to *summing
}

// ReadAt implements vfs.File.
func (f *summingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.to.add(p[:n], off)
	return n, err
}

// Err returns why the checkpoint has ended, nil while its files can be read.
func (c *Checkpoint) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.released
}

// Release ends the checkpoint and lets its files be deleted. Idempotent.
func (c *Checkpoint) Release() {
	defer c.e.events.Guard()
	c.release(fmt.Errorf("%w: the checkpoint was released", kv.ErrClosed))
}

func (c *Checkpoint) release(why error) {
	c.mu.Lock()
	if c.released != nil {
		c.mu.Unlock()
		return
	}
	c.released = why
	c.mu.Unlock()
	c.end()
	c.letGo()
	s := &c.e.checkpoints
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(other *Checkpoint) bool { return other == c })
}

// letGo releases what keeps the files.
func (c *Checkpoint) letGo() {
	c.mu.Lock()
	hold, refs, snapshot := c.hold, c.refs, c.snapshot
	c.hold, c.refs, c.snapshot = nil, nil, 0
	c.mu.Unlock()
	c.e.snapshots.end(snapshot)
	if hold != nil {
		hold.Release()
	}
	for _, ref := range refs {
		ref.Release()
	}
	if m := c.e.member; m != nil {
		m.unhold(c)
	}
}

// closingReader closes a file at its end, or at an error.
type closingReader struct {
	r  io.Reader
	of io.Closer
}

// Read implements io.Reader.
func (r *closingReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil {
		if closeErr := r.of.Close(); closeErr != nil && err == io.EOF {
			err = closeErr
		}
	}
	return n, err
}

// Close implements io.Closer, for a caller that does not read to the end.
func (r *closingReader) Close() error { return r.of.Close() }

// memoryFile is a small file of a checkpoint.
type memoryFile struct{ *bytes.Reader }

// Close implements io.Closer.
func (memoryFile) Close() error { return nil }
