package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// crashWorld runs a script on a simulated disk, records what was promised at each step,
// and keeps the images that a power cut, or a kill, could leave at every step.
//
// The store has one log, so a crash must leave the effect of a prefix of all writes in the
// order of their versions. That batches are whole over all partitions, and that no write
// is missing in between, follows from it.
type crashWorld struct {
	t    testing.TB
	name string
	seed uint64
	keep float64 // share of the images to look at
	pad  int     // bytes that values are longer by
	disk *vfs.Mem
	opts Options
	e    *Engine

	mu     sync.Mutex
	issued []*issuedWrite // in no particular order
	owed   debt
	images []crashImage
}

// issuedWrite is one write, atomic batch or transaction that was asked of the
// store.
type issuedWrite struct {
	ops     []kv.Op
	id      kv.RequestID // named: it is sent again after a crash
	send    sender
	version kv.SeqNum // 0: never happened
}

// sender asks a store to do a write.
type sender func(*Engine, kv.RequestID) (kv.SeqNum, error)

// debt is what the store has promised its callers at some step.
type debt struct {
	synced   kv.SeqNum // the newest version acknowledged at sync
	buffered kv.SeqNum // the newest version acknowledged at buffered or sync
	seen     kv.SeqNum // the newest version that a caller was told
}

type crashImage struct {
	disk *vfs.Mem
	step vfs.Step
	what string // the policy, or kill
	owed debt
	due  kv.SeqNum // what of the debt must come back
}

// killed is the pseudo policy of an image that kill -9 leaves.
const killed vfs.CrashPolicy = 255

// rng returns the randomness of one image: a failure can be repeated from what it
// prints, as long as the steps come in the same order.
func (w *crashWorld) rng(step int, policy vfs.CrashPolicy) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, uint64(step)<<8|uint64(policy)))
}

// watch keeps images of the disk from now on.
func (w *crashWorld) watch() { w.disk.SetHook(w.before) }

func (w *crashWorld) before(s vfs.Step) {
	for _, policy := range append(slices.Clone(vfs.CrashPolicies), killed) {
		rng := w.rng(s.N, policy)
		if rng.Float64() >= w.keep {
			continue
		}
		w.mu.Lock()
		img := crashImage{step: s, owed: w.owed, what: "kill"} // before the image is made
		w.mu.Unlock()
		if policy == killed {
			img.disk, img.due = w.disk.KillImage(), img.owed.buffered
		} else {
			img.disk, img.due, img.what = w.disk.CrashImage(policy, rng), img.owed.synced, policy.String()
			img.owed.buffered = img.owed.synced // the rest may be gone for good
		}
		w.mu.Lock()
		w.images = append(w.images, img)
		w.mu.Unlock()
	}
}

func (w *crashWorld) open() {
	var err error
	w.e, err = Open("data", w.opts)
	require.NoError(w.t, err)
}

func (w *crashWorld) reopen() {
	require.NoError(w.t, w.e.Close())
	w.owe(kv.DurabilitySync, w.owed.seen) // a clean end keeps everything
	w.open()
}

func (w *crashWorld) flush()   { require.NoError(w.t, w.e.Flush(context.Background())) }
func (w *crashWorld) compact() { require.NoError(w.t, w.e.CompactAll(context.Background())) }

func (w *crashWorld) put(key string, o kv.WriteOptions) {
	require.NoError(w.t, w.tryPut(key, o))
}

// tryPut puts a value that no other write has.
func (w *crashWorld) tryPut(key string, o kv.WriteOptions) error {
	return w.write([]kv.Op{w.putOp(key)}, o)
}

func (w *crashWorld) del(key string, o kv.WriteOptions) {
	require.NoError(w.t, w.write([]kv.Op{{Kind: kv.KindDelete, Key: []byte(key)}}, o))
}

func (w *crashWorld) batch(o kv.WriteOptions, ops ...kv.Op) {
	require.NoError(w.t, w.write(ops, o))
}

// putFor puts a value that goes away long after the test.
func (w *crashWorld) putFor(key string, o kv.WriteOptions) {
	op := w.putOp(key)
	op.Expiry = w.e.Now() + uint64(time.Hour.Milliseconds())
	require.NoError(w.t, w.write([]kv.Op{op}, o))
}

// named does a write that is sent again after a crash. It must put something.
func (w *crashWorld) named(o kv.WriteOptions, ops ...kv.Op) {
	require.NoError(w.t, w.issue(w.withName(ops, sendOps(ops, o.Durability)), o.Durability))
}

// namedIf is the same as a batch with conditions.
func (w *crashWorld) namedIf(o kv.WriteOptions, guards []kv.Guard, ops ...kv.Op) {
	require.NoError(w.t, w.issue(w.withName(ops, sendOps(ops, o.Durability, guards...)), o.Durability))
}

// withName gives a write a name.
func (w *crashWorld) withName(ops []kv.Op, send sender) *issuedWrite {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := kv.RequestID{ClientID: 7, Sequence: uint64(len(w.issued)), KnownVersion: w.owed.seen}
	return &issuedWrite{ops: ops, id: id, send: send}
}

// commit runs a transaction that reads keys and has conditions.
func (w *crashWorld) commit(o kv.WriteOptions, reads []string, guards []kv.Guard, ops ...kv.Op) {
	require.NoError(w.t, w.issue(w.withName(ops, sendTransaction(ops, o.Durability, reads, guards, nil)), o.Durability))
}

// loses runs a transaction that must not commit, because of what happens in
// between.
func (w *crashWorld) loses(want error, reads []string, guards []kv.Guard, between func(), ops ...kv.Op) {
	_, err := sendTransaction(ops, kv.DurabilitySync, reads, guards, between)(w.e, kv.RequestID{})
	require.ErrorIs(w.t, err, want)
}

// sendTransaction returns a sender of a transaction. It reads anew each time it is
// sent.
func sendTransaction(ops []kv.Op, d kv.Durability, reads []string, guards []kv.Guard, between func()) sender {
	ctx := context.Background()
	return func(e *Engine, id kv.RequestID) (kv.SeqNum, error) {
		s, err := e.BeginSnapshot(ctx, time.Minute)
		if err != nil {
			return 0, err
		}
		defer e.ReleaseSnapshot(s.ID)
		t := kv.Transaction{ReadVersion: s.Version, Batch: batchOf(ops, guards...)}
		for _, key := range reads {
			if _, err := getAt(e, s.Version, key); err != nil && !errors.Is(err, kv.ErrNotFound) {
				return 0, err
			}
			t.Keys = append(t.Keys, []byte(key))
		}
		if between != nil {
			between()
		}
		return e.Commit(ctx, &t, kv.WriteOptions{Durability: d, RequestID: id})
	}
}

// again sends every named write once more in this life.
func (w *crashWorld) again() {
	line := w.timeline()
	require.NoError(w.t, line.sendAgain(w.e, map[string]string{}, kv.MaxSeqNum, map[*issuedWrite]kv.SeqNum{}))
}

// together puts keys at once from as many goroutines.
func (w *crashWorld) together(o kv.WriteOptions, keys ...string) {
	var all sync.WaitGroup
	for _, key := range keys {
		all.Go(func() { assert.NoError(w.t, w.tryPut(key, o)) })
	}
	all.Wait()
}

func (w *crashWorld) putOp(key string) kv.Op {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.issued)
	return kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: fmt.Appendf(nil, "%d:%s", n, strings.Repeat("v", n*37%200+w.pad))}
}

func (w *crashWorld) write(ops []kv.Op, o kv.WriteOptions) error {
	return w.issue(&issuedWrite{ops: ops, send: sendOps(ops, o.Durability)}, o.Durability)
}

// sendOps returns a sender of one operation, or of several as a batch.
func sendOps(ops []kv.Op, d kv.Durability, guards ...kv.Guard) sender {
	return func(e *Engine, id kv.RequestID) (kv.SeqNum, error) {
		if len(ops)+len(guards) > 1 || ops[0].Kind == kv.KindRangeDelete {
			return e.Apply(context.Background(), batchOf(ops, guards...), kv.WriteOptions{Durability: d, RequestID: id})
		}
		one := kv.Write{Op: ops[0], Durability: d, RequestID: id}
		err := e.Write(context.Background(), []*kv.Write{&one})
		return one.Version, errors.Join(err, one.Err)
	}
}

// issue sends a write and records its outcome.
func (w *crashWorld) issue(issued *issuedWrite, d kv.Durability) error {
	w.mu.Lock()
	w.issued = append(w.issued, issued)
	w.mu.Unlock()
	version, err := issued.send(w.e, issued.id)
	if err != nil {
		return err
	}
	w.mu.Lock()
	issued.version = version
	w.mu.Unlock()
	if d == kv.DurabilitySync {
		w.requireSynced(version)
	}
	w.owe(d, version)
	return nil
}

// owe notes an acknowledgement.
func (w *crashWorld) owe(d kv.Durability, version kv.SeqNum) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owed.seen = max(w.owed.seen, version)
	if d >= kv.DurabilityBuffered {
		w.owed.buffered = max(w.owed.buffered, version)
	}
	if d >= kv.DurabilitySync {
		w.owed.synced = max(w.owed.synced, version)
	}
}

// requireSynced looks at the disk: every frame of the log with a record up to
// that version is there to stay, unless its segment has been given back.
func (w *crashWorld) requireSynced(version kv.SeqNum) {
	dir := descriptor.LogDir("data")
	segments, err := w.disk.List(dir)
	require.NoError(w.t, err)
	for _, name := range segments {
		name = path.Join(dir, name)
		_, err := wal.Dump(w.disk, name, func(f wal.FrameInfo) error {
			if len(f.Records) == 0 || f.Records[0].Base > version || w.disk.SyncedBytes(name, f.Offset, f.Bytes) {
				return nil
			}
			_, err := w.disk.Stat(name)
			if err == nil {
				err = fmt.Errorf("version %d was acknowledged, but %s is not synced at %d", version, name, f.Offset)
			}
			return err
		})
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, kv.ErrCorrupt) { // a segment may be in the making
			require.NoError(w.t, err)
		}
	}
}

// settle decides, after a failed store was opened again, the outcome of puts without a
// version: a put that is not present now must never appear.
func (w *crashWorld) settle() {
	for _, issued := range w.issued {
		item, err := w.e.Get(context.Background(), issued.ops[0].Key)
		if issued.version == 0 && err == nil && string(item.Value) == string(issued.ops[0].Value) {
			issued.version = item.Version
		}
	}
}

// finish ends the recording and closes the store.
func (w *crashWorld) finish() {
	w.disk.SetHook(nil)
	require.NoError(w.t, w.e.Close())
}

// timeline is every state that the store went through, as it may come back.
type timeline struct {
	versions []kv.SeqNum    // ascending; 0 first: the empty store
	states   map[string]int // the state after versions[i], the last such i
	keys     []string       // all that were ever written
	named    []*issuedWrite // in their order
}

func (w *crashWorld) timeline() *timeline {
	happened := slices.DeleteFunc(slices.Clone(w.issued), func(i *issuedWrite) bool { return i.version == 0 })
	slices.SortFunc(happened, func(a, b *issuedWrite) int { return int(a.version) - int(b.version) })
	line := &timeline{versions: []kv.SeqNum{0}, states: map[string]int{"": 0}}
	state, keys := map[string]string{}, map[string]bool{}
	for i, issued := range happened {
		for i := range issued.ops {
			keys[string(issued.ops[i].Key)] = true
		}
		applyTo(state, issued.version, issued.ops)
		if issued.id.Named() {
			line.named = append(line.named, issued)
		}
		line.versions = append(line.versions, issued.version)
		line.states[digest(state)] = i + 1
	}
	line.keys = slices.Sorted(maps.Keys(keys))
	return line
}

// applyTo does the operations of one write to a state.
func applyTo(state map[string]string, version kv.SeqNum, ops []kv.Op) {
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case kv.KindPut:
			state[string(op.Key)] = versioned(op.Value, version)
		case kv.KindDelete:
			delete(state, string(op.Key))
		default:
			span := kv.Range{Start: op.Key, End: op.Value}
			maps.DeleteFunc(state, func(key, _ string) bool { return span.Contains([]byte(key)) })
		}
	}
}

func versioned(value []byte, version kv.SeqNum) string { return fmt.Sprintf("%s@%d", value, version) }

// digest is a state as one string.
func digest(state map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(state)) {
		fmt.Fprintf(&b, "%q=%s\n", key, state[key])
	}
	return b.String()
}

// state reads everything, by a scan and by single reads, which must agree.
func (line *timeline) state(e *Engine) (map[string]string, error) {
	ctx := context.Background()
	s, err := e.Scan(ctx, kv.Range{}, kv.ScanOptions{})
	if err != nil {
		return nil, err
	}
	state := map[string]string{}
	for s.Next() {
		state[string(s.Item().Key)] = versioned(s.Item().Value, s.Item().Version)
	}
	if err := errors.Join(s.Err(), s.Close()); err != nil {
		return nil, err
	}
	for _, key := range line.keys {
		got := ""
		switch item, err := e.Get(ctx, []byte(key)); {
		case err == nil:
			got = versioned(item.Value, item.Version)
		case !errors.Is(err, kv.ErrNotFound):
			return nil, err
		}
		if got != state[key] {
			return nil, fmt.Errorf("key %q: a get says %q, a scan %q", key, got, state[key])
		}
	}
	return state, nil
}

// errLost, errTorn and errTwice are the ways in which a store can break its promise.
var (
	errLost  = errors.New("lost an acknowledged write")
	errTorn  = errors.New("no prefix of the writes")
	errTwice = errors.New("a write happened twice")
)

// judge compares a recovered state with what was promised. It returns the version up to
// which the writes are present.
func (line *timeline) judge(state map[string]string, owed kv.SeqNum) (kv.SeqNum, error) {
	i, ok := line.states[digest(state)]
	switch {
	case !ok:
		return 0, fmt.Errorf("%w:\n%s", errTorn, digest(state))
	case i+1 < len(line.versions) && line.versions[i+1] <= owed:
		return 0, fmt.Errorf("%w: came back up to version %d, owed up to %d", errLost, line.versions[i], owed)
	}
	return line.versions[i], nil
}

// sendAgain does what clients do after a crash: it sends every write with a request id
// again. Those that versions contains, or that were recovered, must not be applied again;
// the others are applied now, to the store, to state and to versions.
func (line *timeline) sendAgain(e *Engine, state map[string]string, back kv.SeqNum, versions map[*issuedWrite]kv.SeqNum) error {
	for _, issued := range line.named {
		id := issued.id
		id.Retried = true
		was, there := versions[issued]
		if !there && issued.version <= back {
			was, there = issued.version, true
		}
		switch version, err := issued.send(e, id); {
		case errors.Is(err, kv.ErrUncertain) && id.KnownVersion+1 < e.firstSeq:
			// The log begins later.
		case err != nil:
			return fmt.Errorf("send version %d again: %w", issued.version, err)
		case there && version != was:
			return fmt.Errorf("%w: as version %d and as %d", errTwice, was, version)
		case !there:
			applyTo(state, version, issued.ops)
			versions[issued] = version
		}
	}
	return nil
}

// requireTidy looks at a closed store: whatever its manifests do not name is in
// lost+found.
func requireTidy(fsys vfs.FS, partitions int) error {
	want := map[string]bool{
		descriptor.Path("data"): true, descriptor.ClockPath("data"): true, descriptor.LockPath("data"): true,
	}
	dirs := []string{"data"}
	for id := range partitions {
		dir := descriptor.PartitionDir("data", id)
		dirs = append(dirs, dir)
		v, err := manifest.Load(fsys, dir, uint32(id))
		if err != nil {
			return err
		}
		want[path.Join(dir, manifest.CurrentName)] = true
		want[path.Join(dir, manifest.ManifestName(v.Num))] = true
		for kind, num := range v.Files() {
			name := manifest.TableName(num)
			if kind == manifest.FileValues {
				name = manifest.ValuesName(num)
			}
			want[path.Join(dir, name)] = true
		}
	}
	for _, dir := range dirs {
		names, err := fsys.List(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			name = path.Join(dir, name)
			if info, err := fsys.Stat(name); err != nil || !info.IsDir() && !want[name] {
				return errors.Join(err, fmt.Errorf("stray file %s", name))
			}
		}
	}
	return nil
}
