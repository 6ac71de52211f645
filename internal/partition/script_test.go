package partition_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/partition/partitiontest"
	"github.com/kvd-db/kvd/internal/scanbatch"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a partition that a text file tells what to do.
type script struct {
	t       *testing.T
	fs      *vfs.Mem
	world   *partitiontest.World
	p       *partition.Partition
	c       *commit.Coordinator
	commits []*commit.Commit // proposed, their outcome not asked for yet
}

func newScript(t *testing.T) *script {
	s := &script{t: t, fs: vfs.NewMem(), world: partitiontest.NewWorld()}
	require.NoError(t, partition.Create(s.options()))
	s.open()
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s
}

func (s *script) options() partition.Options {
	return s.world.Options(s.fs)
}

func (s *script) open() {
	s.openWith(s.options())
}

// openWith opens the partition with options, and coordinates its writes.
func (s *script) openWith(o partition.Options) {
	p, err := partition.Open(o)
	require.NoError(s.t, err)
	s.p, s.c = p, serve(p, s.world)
}

// serve returns a coordinator of the partition's writes, which it has started.
func serve(p *partition.Partition, w *partitiontest.World) *commit.Coordinator {
	c := commit.New(commit.Options{
		Orchestrator: commit.NewOrchestrator(nil, new(commit.Company)),
		ID:           p.ID(), Tree: p, Applied: w, Now: commit.Clocked(w.Now), InflightBytes: 1 << 20, RequestIDs: commit.NewRequestWindow(4),
	})
	p.Attach(c)
	p.Start(w, w.Last())
	c.Start(w, 1, w.Last())
	return c
}

func (s *script) close() error {
	s.c.Close()
	return s.p.Close()
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
		s.world.Snapshot()
	case "release":
		s.world.Release()
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
		if err := s.close(); err != nil {
			return err
		}
		s.open()
	default:
		return fmt.Errorf("unknown command %q", name)
	}
	return nil
}

// write puts key=value pairs, or deletes keys, in one call. A pair may end in
// @expiry; an argument #n or #n>v gives the writes after it a request id, in the latter case as
// sent again by a caller that had seen version v.
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
	call := commit.NewCall(1)
	commit.Submit(s.t.Context(), []*commit.WriteGroup{s.c.NewWriteGroup(call, writes)})
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
	require.NoError(s.t, partitiontest.Lookup(s.t.Context(), s.p, reads...))
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
	share := partition.ReadShare{Partition: s.p}
	for _, r := range read {
		share.Reads = append(share.Reads, &kv.Lookup{Key: r.Key, Hash: r.Hash})
	}
	again := slices.Clone(share.Reads)
	l := partition.BeginLookup([]partition.ReadShare{{Partition: s.p}, share})
	defer l.End()
	l.Cached()
	for i, r := range read {
		if errors.Is(r.Err, kv.ErrCorrupt) {
			require.Contains(s.t, l.Left(1), again[i], "damage is never in memory")
			continue
		}
		require.NotContains(s.t, l.Left(1), again[i])
		require.Equal(s.t, r, again[i])
	}
}

// scan prints what the oldest snapshot sees, or everything.
func (s *script) scan(out *strings.Builder) error {
	snapshots, now := s.world.Horizon()
	var w partition.Walk
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
	v, err := manifest.Load(s.fs, "p", 0)
	if err != nil {
		return err
	}
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
