package partition

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/scanbatch"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what a partition needs from the engine above it, at its simplest: a
// log that is durable at once, and everything applied is visible.
type world struct {
	mu        sync.Mutex
	next      kv.SeqNum
	pos       wal.Pos
	snapshots []kv.SeqNum
	now       uint64
	memory    int64
	stalled   wal.Pos // what is synced while the disk stands still; 0: it does not
	applied   func(base kv.SeqNum)
	full      bool        // there is no room yet
	waiting   []wal.Waker // for room
}

func (w *world) Append(payload []byte, units uint32, _ kv.Durability, waker wal.Waker, _ *trace.Batch) (kv.SeqNum, wal.Pos, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full {
		return 0, 0, wal.ErrNoRoomYet
	}
	base := w.next
	w.next += kv.SeqNum(units)
	w.pos += wal.Pos(len(payload))
	waker.Wake()
	return base, w.pos, nil
}

func (w *world) OnRoom(waker wal.Waker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.full {
		waker.Wake()
		return
	}
	w.waiting = append(w.waiting, waker)
}

// makeRoom has Append find room, or none.
func (w *world) makeRoom(room bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = !room
	for _, waker := range w.waiting {
		waker.Wake()
	}
	w.waiting = nil
}

func (w *world) Flush()                                    {}
func (w *world) Written() wal.Pos                          { return w.Synced() }
func (w *world) WaitSynced(context.Context, wal.Pos) error { return nil }
func (w *world) Err() error                                { return nil }
func (w *world) Ready(*Partition)                          {}

func (w *world) Applied(base kv.SeqNum, _ uint32) {
	if w.applied != nil {
		w.applied(base)
	}
}

func (w *world) Synced() wal.Pos {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stalled > 0 {
		return w.stalled
	}
	return w.pos
}

func (w *world) WaitVisible(context.Context, kv.SeqNum) error { return nil }

func (w *world) Horizon() ([]kv.SeqNum, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(slices.Values(append(slices.Clone(w.snapshots), w.next-1))), w.now
}

func (w *world) clock() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) grew(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.memory += bytes
}

func (w *world) Grew(_ *Partition, bytes int64)    { w.grew(bytes) }
func (w *world) Sealed(*Partition, int64)          {}
func (w *world) Flushed(_ *Partition, bytes int64) { w.grew(-bytes) }

// script is a partition that a text file tells what to do.
type script struct {
	t       *testing.T
	fs      *vfs.Mem
	world   *world
	p       *Partition
	commits []*Commit // proposed, their outcome not asked for yet
}

func newScript(t *testing.T) *script {
	s := &script{t: t, fs: vfs.NewMem(), world: &world{next: 1}}
	require.NoError(t, Create(s.options()))
	s.open()
	t.Cleanup(func() { require.NoError(t, s.p.Close()) })
	return s
}

func (s *script) options() Options {
	return Options{
		FS: s.fs, Dir: "p", Names: 4, Now: s.world.clock, Sequencer: s.world, Budget: s.world, Scheduler: s.world, Cache: sstable.NewCache(1 << 20),
		FlushBytes: 1 << 20, InflightBytes: 1 << 20, TableBytes: 1, Table: sstable.WriterOptions{BlockBytes: 512},
	}
}

func (s *script) open() {
	p, err := Open(s.options())
	require.NoError(s.t, err)
	s.p = p
	p.Start(s.world, 1, s.world.next-1)
}

func (s *script) run(command string) string {
	var out strings.Builder
	for _, line := range strings.Split(command, "\n") {
		words := strings.Fields(line)
		if err := s.command(&out, words[0], words[1:]); err != nil {
			fmt.Fprintf(&out, "error: %v\n", err)
		}
	}
	return out.String()
}

func (s *script) command(out *strings.Builder, name string, args []string) error {
	ctx := s.t.Context()
	switch name {
	case "put", "del":
		return s.write(out, name, args)
	case "get":
		s.get(out, args)
	case "scan":
		return s.scan(out)
	case "flush":
		return s.p.FlushAll(ctx)
	case "compact":
		return s.p.CompactAll(ctx)
	case "merge":
		did, err := s.p.Compact(ctx)
		fmt.Fprintf(out, "did: %v\n", did)
		return err
	case "snapshot":
		s.world.mu.Lock()
		s.world.snapshots = append(s.world.snapshots, s.world.next-1)
		s.world.mu.Unlock()
	case "release":
		s.world.snapshots = nil
	case "now":
		return s.setNow(args)
	case "stall", "go":
		s.stall(name == "stall")
	case "propose":
		return s.propose(out, args)
	case "outcome":
		s.outcome(out)
	case "files":
		return s.files(out)
	case "reopen": // the log is not replayed: what was not flushed is gone
		if err := s.p.Close(); err != nil {
			return err
		}
		s.open()
	default:
		return fmt.Errorf("unknown command %q", name)
	}
	return nil
}

// write puts key=value pairs, or deletes keys, in one call. A pair may end in
// @expiry; an argument #n or #n>v names the writes behind it, in the latter case as
// sent again by somebody who had seen version v.
func (s *script) write(out *strings.Builder, name string, args []string) error {
	var writes []*kv.Write
	var id kv.RequestID
	for _, arg := range args {
		if strings.HasPrefix(arg, "#") {
			id = parseRequestID(arg)
			continue
		}
		op := parseOp(arg)
		if name == "del" {
			op = kv.Op{Kind: kv.KindDelete, Key: []byte(arg)}
		}
		if id.Named() {
			id.Content = keyhash.ContentOne(&op, keyhash.Sum(op.Key))
		}
		writes = append(writes, &kv.Write{
			Op: op, Hash: keyhash.Sum(op.Key), RequestID: id, Durability: kv.DurabilitySync,
		})
	}
	call := NewCall(1)
	s.p.Submit(s.t.Context(), NewGroup(call, writes))
	<-call.Done()
	var errs []error
	for _, w := range writes {
		errs = append(errs, w.Err)
		if w.Err == nil {
			fmt.Fprintf(out, "%s: version %d%s\n", w.Op.Key, w.Version, again(w.Deduplicated))
		}
	}
	return errors.Join(errs...)
}

func (s *script) get(out *strings.Builder, keys []string) {
	var reads []*kv.Lookup
	for _, k := range keys {
		reads = append(reads, &kv.Lookup{Key: []byte(k), Hash: keyhash.Sum([]byte(k))})
	}
	require.NoError(s.t, s.p.Lookup(s.t.Context(), reads, nil))
	s.requireCached(reads)
	for _, r := range reads {
		switch {
		case r.Err != nil:
			fmt.Fprintf(out, "%s: %v\n", r.Key, r.Err)
		case r.Found:
			fmt.Fprintf(out, "%s: %s (version %d)\n", r.Key, r.Value, r.Version)
		default:
			fmt.Fprintf(out, "%s: not found\n", r.Key)
		}
	}
}

// requireCached: what was read a moment ago is answered again, the same, from memory.
func (s *script) requireCached(read []*kv.Lookup) {
	share := ReadShare{Partition: s.p}
	for _, r := range read {
		share.Reads = append(share.Reads, &kv.Lookup{Key: r.Key, Hash: r.Hash})
	}
	again := slices.Clone(share.Reads)
	shares := []ReadShare{{Partition: s.p}, share}
	LookupCached(shares)
	for i, r := range read {
		if errors.Is(r.Err, kv.ErrCorrupt) {
			require.Contains(s.t, shares[1].Reads, again[i], "damage is never in memory")
			continue
		}
		require.NotContains(s.t, shares[1].Reads, again[i])
		require.Equal(s.t, r, again[i])
	}
}

// scan prints what the oldest snapshot sees, or everything.
func (s *script) scan(out *strings.Builder) error {
	snapshots, now := s.world.Horizon()
	var w Walk
	w.Open(s.p, snapshots[0], now, kv.Range{}, false)
	for more := true; more; {
		var b scanbatch.Batch
		b.Reset(3, 1<<10, false)
		more = w.Fill(&b)
		for _, item := range b.Items {
			fmt.Fprintf(out, "%s=%s ", item.Key, item.Value)
		}
	}
	out.WriteString("\n")
	return errors.Join(w.Err(), w.Close())
}

// files prints the runs and what the directory holds.
func (s *script) files(out *strings.Builder) error {
	state := s.p.acquire()
	defer state.release()
	v := state.levels.version
	for i, run := range v.Deltas {
		fmt.Fprintf(out, "delta %d: %s\n", i, brief(run))
	}
	fmt.Fprintf(out, "base: %s\n", brief(v.Base))
	names, err := s.fs.List("p")
	tables := 0
	for _, name := range names {
		if kind, _ := manifest.ParseName(name); kind == manifest.FileTable {
			tables++
		}
	}
	fmt.Fprintf(out, "on disk: %d\n", tables)
	return err
}

func brief(run manifest.Run) string {
	if len(run) == 0 {
		return "empty"
	}
	var parts []string
	for i := range run {
		t := &run[i]
		parts = append(parts, fmt.Sprintf("%s..%s (%d entries, %d deletes)", t.Smallest, t.Largest, t.Entries, t.Deletes))
	}
	return strings.Join(parts, ", ")
}

var rewrite = flag.Bool("rewrite", false, "write what scripts print into testdata; look at the diff")

// TestScripts runs testdata/*.txt: commands, a line of dashes, what they print.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	s := newScript(t)
	var command, want, rewritten []string
	inOutput := false
	finish := func() {
		if len(command) == 0 {
			return
		}
		got := s.run(strings.Join(command, "\n"))
		if !*rewrite {
			assert.Equal(t, strings.Join(want, "\n"), strings.TrimRight(got, "\n"), "%s: %s", file, command)
		}
		rewritten = append(rewritten, command...)
		rewritten = append(rewritten, "----")
		if got != "" {
			rewritten = append(rewritten, strings.TrimRight(got, "\n"))
		}
		command, want, inOutput = nil, nil, false
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "" || strings.HasPrefix(line, "#"):
			finish()
			rewritten = append(rewritten, line)
		case line == "----":
			inOutput = true
		case inOutput:
			want = append(want, line)
		default:
			command = append(command, line)
		}
	}
	require.NoError(t, lines.Err())
	finish()
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(rewritten, "\n")+"\n"), 0o600))
	}
}
