package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// panicChild names the role, of panics, whose holder panics in a process of its own.
const panicChild = "TEST_PANIC_CHILD"

// panics says, for each role of the engine, which operation of the file system
// panics: the first one of the kind that is called, directly or not, by the function
// named. A panic is a bug in the engine as far as the service can tell.
var panics = map[string]struct {
	kind   faultfs.Kind
	file   string
	caller string
}{
	"wal writer":                   {faultfs.Write, "*.wal", "wal.(*Log).writeNextLocked"},
	"wal syncer":                   {faultfs.Sync, "*.wal", "wal.(*Log).timedSync"},
	"wal segment preparation":      {faultfs.Create, "*.wal", "wal.(*Log).prepare"},
	"reader of a partition":        {faultfs.Read, "*.sst", "partition.(*Partition).serveReads"},
	"reader at one version":        {faultfs.Read, "*.sst", "engine.(*Engine).LookupAt"},
	"scan":                         {faultfs.Read, "*.sst", "engine.(*Scanner).Next"},
	"flush":                        {faultfs.Create, "*.sst", "partition.(*Partition).Flush"},
	"compaction":                   {faultfs.Create, "*.sst", "partition.(*Partition).Compact"},
	"maintenance loop":             {faultfs.Usage, "*", "engine.(*Engine).maintain"},
	"recovery":                     {faultfs.Create, "*.wal", "engine.Open"},
	"holder of a partition's turn": {}, // see runWithUnreadableValue
}

// A panic in the engine leaves locks and roles held by a goroutine that has gone, so
// that other callers would wait for ever: the process has to end, at once, with a
// reason and an exit code.
func TestAPanicOfTheEngineEndsTheProcess(t *testing.T) {
	for role := range panics {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(testwait.Context(t), os.Args[0])
			cmd.Env = append(os.Environ(), panicChild+"="+role)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s", out)
			require.Equal(t, ExitBug, exit.ExitCode(), "%s", out)
			var told []string
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "panicked") {
					told = append(told, line)
				}
			}
			require.Len(t, told, 1, "one line: %s", out)
			assert.Contains(t, told[0], "github.com/kvd-db/kvd/internal/", "with the stack")
			assert.NotContains(t, string(out), "GOING ON")
		})
	}
}

// outlived is how long a process goes on after a panic before it says that the panic did not
// end it. Only a process that fails the test waits.
const outlived = 30 * time.Second

// panicAt returns an injector that calls panicking and panics whenever the role comes by.
func panicAt(role string, panicking func()) faultfs.Injector {
	at := panics[role]
	isKind, isFile := faultfs.OnKind(at.kind), faultfs.OnName(at.file)
	return faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if isKind(op) && isFile(op) && calledBy(at.caller) {
			panicking()
			panic("injected: " + role)
		}
		return faultfs.Fault{}
	})
}

// calledBy reports whether a function is on the stack of this goroutine.
func calledBy(function string) bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, function) {
			return true
		}
		if !more {
			return false
		}
	}
}

// runWithPanic runs a service in which the holder of a role panics, and a client that
// brings it to that. It returns only if the service outlives the panic.
func runWithPanic(ctx context.Context, role string) error {
	fsys := faultfs.Wrap(vfs.NewMem(), nil)
	c := testConfig(nil, fsys)
	c.Log = c.NewLog(zapcore.AddSync(os.Stderr), true)
	c.FlushKeys, c.segmentBytes = 8, 64<<10
	if panics[role].caller == "" {
		return runWithUnreadableValue(c)
	}
	if role == "recovery" {
		fsys.SetInjector(panicAt(role, func() {}))
	}
	return Run(ctx, c, func(listen, _ net.Addr) {
		go func() {
			ctx, outlives := context.WithCancel(ctx)
			defer outlives()
			panicking := func() { time.AfterFunc(outlived, outlives) }
			err := provoke(ctx, role, listen.String(), func() { fsys.SetInjector(panicAt(role, panicking)) })
			fmt.Fprintln(os.Stderr, "GOING ON:", err)
			os.Exit(ExitOK)
		}()
	})
}

// provoke has every role do something, until ctx ends: calls hang where a role is held for good.
func provoke(ctx context.Context, role, addr string, arm func()) error {
	client, err := kvd.Open(addr, kvd.WithTimeout(testwait.Left()))
	if err != nil {
		return err
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "key/%03d", i) }
	for i := range 64 { // some of it in tables
		if err := client.Put(ctx, key(i), make([]byte, 100)); err != nil {
			return err
		}
	}
	arm()
	for i := range 64 {
		if role != "reader of a partition" { // whose reads would leave nothing to do for the other
			if _, err := client.GetMany(ctx, [][]byte{key(i), key(63 - i)}); err != nil {
				return fmt.Errorf("get many: %w", err)
			}
		}
		if _, err := client.Get(ctx, key(i)); err != nil {
			return fmt.Errorf("get: %w", err)
		}
		for _, err := range client.Scan(ctx, kvd.All()) {
			if err != nil {
				return fmt.Errorf("scan: %w", err)
			}
		}
		if err := client.Put(ctx, key(i), make([]byte, 4<<10), kvd.Durable(kvd.Sync)); err != nil {
			return fmt.Errorf("put: %w", err)
		}
	}
	<-ctx.Done() // what runs by itself, each second, comes by
	return nil
}

// runWithUnreadableValue panics while a partition's turn is held: there the value is
// copied into a record, and the memory of this one cannot be read.
func runWithUnreadableValue(c Config) error {
	unreadable, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	j := newJournal(c.Log)
	e, err := engine.Open("data", engine.Options{FS: c.FS, Partitions: 1, Events: j.listener()})
	if err != nil {
		return err
	}
	store := Store(e)
	for !orchestratorIdles() { // so that the caller leads: it is its goroutine that has SetPanicOnFault
		runtime.Gosched()
	}
	func() {
		defer func() { _ = recover() }() // as a server would
		debug.SetPanicOnFault(true)
		w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: unreadable}}
		err = store.Write(context.Background(), []*kv.Write{&w})
	}()
	ctx, cancel := context.WithTimeout(context.Background(), outlived)
	defer cancel()
	w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("b")}}
	err = store.Write(ctx, []*kv.Write{&w})
	fmt.Fprintln(os.Stderr, "GOING ON:", err, w.Err)
	os.Exit(ExitOK)
	return nil
}

// orchestratorIdles reports whether the goroutine of the orchestrator waits for something to do.
func orchestratorIdles() bool {
	stacks := make([]byte, 1<<20)
	for _, g := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(g, "commit.(*Orchestrator).orchestrate(") {
			state, _, _ := strings.Cut(g, "\n")
			return strings.Contains(state, "[select")
		}
	}
	return false
}
