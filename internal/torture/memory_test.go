package torture

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvd-db/kvd/internal/bytesize"
	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

const (
	largeValue  = 4 << 20 // the longest value
	largeValues = 24
	smallValues = 200

	// slackShare of the budget, a quarter, is what the process may exceed it by.
	slackShare = 4
)

// memoryCase is what a hostile or unlucky client does, again and again, until its
// context ends.
type memoryCase struct {
	name   string
	attack func(ctx context.Context, t *testing.T, s *server)
	// events is how many events of the attack the test waits for: see progress.
	events int64
	// control: the server has no load, and its callers share the processors with a process that
	// computes. What they wait for then is the system's scheduler: no bound is asserted, and the
	// case is left out where latency is not judged.
	control bool
}

var memoryCases = []memoryCase{
	{name: "scans of large values", attack: scanLarge, events: 32},
	{name: "conditions on large values", attack: conditionsOnLarge, events: 256},
	{name: "unread answers, unary calls by gRPC", attack: unreadUnary, events: 1},
	{name: "unread answers, pipeline by gRPC", attack: unreadPipeline, events: 1},
	{name: "unread answers, raw frames", attack: unreadRaw, events: 1},
	{name: "writers of large values", attack: writeLarge, events: 16},
	{name: "no load, busy processors", attack: compute, events: 1, control: true},
}

// progress counts what the attack of a test has done.
var progress atomic.Int64

// A server stays within its memory budget and a quarter more, whatever a client asks
// for and however little of it that client reads.
//
// MEMORY_BUDGETS names other budgets, separated by spaces, MEMORY_TABLE a file that the
// rows of each case are appended to, MEMORY_SECONDS how long each attack lasts, and
// MEMORY_CGROUP the directory of a control group that servers run in, with the bound of
// the test as its limit. With MEMORY_P99 set, the 99th percentiles of honest reads and of
// honest writes may each be at most so many times those of calm; scripts/memory.sh sets
// it, no other test looks at the clock.
func TestMemoryStaysWithinTheBudget(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	if name := os.Getenv(attackCase); name != "" {
		attackFromHere(t, name)
		return
	}
	budgets := strings.Fields(os.Getenv("MEMORY_BUDGETS"))
	if len(budgets) == 0 {
		budgets = []string{"64MiB"}
	}
	for _, text := range budgets {
		budget, err := bytesize.Parse(text)
		require.NoError(t, err)
		if group := os.Getenv("MEMORY_CGROUP"); group != "" {
			enterGroup(t, group, budget+budget/slackShare)
		}
		dir := filepath.Join(t.TempDir(), "data")
		loadLarge(t, dir, text)
		for _, c := range memoryCases {
			if c.control && os.Getenv("MEMORY_P99") == "" {
				continue
			}
			t.Run(text+" "+c.name, func(t *testing.T) {
				s := serve(t, dir, "--memory", text)
				stopped := false
				defer func() {
					if !stopped {
						s.kill(t)
					}
				}()
				calm := honest(t, s, func() { waitForHonest(t) })
				resetPeak(t, s)
				progress.Store(0)
				ctx, cancel := context.WithCancel(context.Background())
				var attack sync.WaitGroup
				attack.Go(func() { besiege(ctx, t, s, c) })
				beset := honest(t, s, func() { waitForAttack(t, c.events) })
				peak := peakOf(t, s)
				cancel()
				attack.Wait()
				for _, row := range []string{
					fmt.Sprintf("%-8s %-38s peak %5d MiB", text, c.name, peak>>20),
					compare("reads", calm.reads, beset.reads),
					compare("writes", calm.writes, beset.writes),
				} {
					t.Log(row)
					note(t, row)
				}
				assert.LessOrEqual(t, peak, budget+budget/slackShare, "%s: %d MiB at a budget of %s", c.name, peak>>20, text)
				if text := os.Getenv("MEMORY_P99"); text != "" && !c.control {
					times, err := strconv.ParseFloat(text, 64)
					require.NoError(t, err, "MEMORY_P99")
					assert.LessOrEqual(t, p99(beset.reads).Seconds(), times*p99(calm.reads).Seconds(), "%s: p99 of honest reads", c.name)
					assert.LessOrEqual(t, p99(beset.writes).Seconds(), times*p99(calm.writes).Seconds(), "%s: p99 of honest writes", c.name)
				}
				s.stop(t)
				stopped = true
			})
		}
	}
}

// In the environment of the process of an attack: what it attacks, and the name of its case.
const (
	attackAddr = "KVD_ATTACK_ADDR"
	attackCase = "KVD_ATTACK_CASE"
)

// besiege attacks a server until ctx ends, from a process of its own: the callers beside the attack
// share no memory and no goroutine scheduler with it. Where their latency is judged, it gets only
// what the server and they leave of the processors; the control has a share like a busy server's.
func besiege(ctx context.Context, t *testing.T, s *server, c memoryCase) {
	args := []string{os.Args[0], "-test.run", "^TestMemoryStaysWithinTheBudget$", "-test.timeout", testwait.Left().String()}
	if os.Getenv("MEMORY_P99") != "" && !c.control {
		args = append([]string{"chrt", "--idle", "0"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), attackAddr+"="+s.addr, attackCase+"="+c.name)
	stdin, err := cmd.StdinPipe()
	if !assert.NoError(t, err) {
		return
	}
	stdout, err := cmd.StdoutPipe()
	if !assert.NoError(t, err) || !assert.NoError(t, cmd.Start()) {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = stdin.Close() })()
	var said strings.Builder
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
			progress.Store(n)
		} else {
			fmt.Fprintln(&said, lines.Text())
		}
	}
	assert.NoError(t, lines.Err())
	assert.NoError(t, cmd.Wait(), "the process of the attack:\n%s", &said)
}

// attackFromHere is what the process of besiege does: it attacks until its standard input ends, and
// prints its progress.
func attackFromHere(t *testing.T, name string) {
	i := slices.IndexFunc(memoryCases, func(c memoryCase) bool { return c.name == name })
	require.NotEqual(t, -1, i, "there is no case %q", name)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	go func() {
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			fmt.Println(progress.Load())
		}
	}()
	memoryCases[i].attack(ctx, t, &server{addr: os.Getenv(attackAddr)})
}

// enterGroup has the servers of the test run in a control group, with a limit.
func enterGroup(t *testing.T, group string, limit int64) {
	t.Helper()
	name := filepath.Join(group, "memory.max")
	if _, err := os.Stat(name); err != nil {
		name = filepath.Join(group, "memory.limit_in_bytes") // version 1
	}
	require.NoError(t, os.WriteFile(name, []byte(strconv.FormatInt(limit, 10)), 0o644))
	script := filepath.Join(t.TempDir(), "kvd")
	text := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs && exec %s \"$@\"\n", group, kvdBinary)
	require.NoError(t, os.WriteFile(script, []byte(text), 0o755))
	program := kvdBinary
	kvdBinary = script
	t.Cleanup(func() { kvdBinary = program })
}

func note(t *testing.T, row string) {
	name := os.Getenv("MEMORY_TABLE")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = fmt.Fprintln(f, row)
	require.NoError(t, errors.Join(err, f.Close()))
}

func largeKey(i int) []byte { return fmt.Appendf(nil, "large-%06d", i%largeValues) }
func smallKey(i int) []byte { return fmt.Appendf(nil, "small-%06d", i%smallValues) }

// loadLarge fills a store.
func loadLarge(t *testing.T, dir, budget string) {
	t.Helper()
	s := serve(t, dir, "--memory", budget)
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	ctx := context.Background()
	value := make([]byte, largeValue)
	for i := range largeValues {
		copy(value, noise[i:]) // so that each differs
		require.NoError(t, db.Put(ctx, largeKey(i), value))
	}
	for i := range smallValues {
		require.NoError(t, db.Put(ctx, smallKey(i), make([]byte, 100)))
	}
	require.NoError(t, db.Close())
	s.stop(t)
}

// honestTimes are the calls of honest callers.
type honestTimes struct{ reads, writes []kvd.Timings }

func (h *honestTimes) append(more honestTimes) {
	h.reads, h.writes = append(h.reads, more.reads...), append(h.writes, more.writes...)
}

// honest runs small reads and buffered writes until done returns, and returns where the
// time of each went. A call that is refused is tried again by the client; one that fails
// for good fails the test.
func honest(t *testing.T, s *server, done func()) (took honestTimes) {
	t.Helper()
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var mu sync.Mutex
	honestCalls.Store(0)
	_, pause := honestPace()
	for caller := range 4 {
		all.Go(func() {
			var mine honestTimes
			for i := caller; ctx.Err() == nil; i++ {
				var timings kvd.Timings
				var err error
				if i%10 == 0 {
					err = db.Put(context.Background(), smallKey(i), make([]byte, 100), kvd.Durable(kvd.Buffered), kvd.Timed(&timings))
					mine.writes = append(mine.writes, timings)
				} else {
					_, err = db.Get(context.Background(), smallKey(i), kvd.Timed(&timings))
					mine.reads = append(mine.reads, timings)
				}
				if !assert.NoError(t, err, "an honest caller") {
					break
				}
				honestCalls.Add(1)
				time.Sleep(pause)
			}
			mu.Lock()
			defer mu.Unlock()
			took.append(mine)
		})
	}
	done()
	cancel()
	all.Wait()
	require.NoError(t, db.Close())
	return took
}

// honestCalls counts the calls of honest callers.
var honestCalls atomic.Int64

// p99 sorts calls by how long they took, and returns the 99th percentile.
func p99(all []kvd.Timings) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.SortFunc(all, func(a, b kvd.Timings) int { return cmp.Compare(a.Total(), b.Total()) })
	return all[len(all)*99/100].Total().Round(10 * time.Microsecond)
}

// compare returns a row about calls of one kind: their 99th percentiles, and the mean
// time that the slowest hundredth beside the attack spent in each stage.
func compare(kind string, calm, beset []kvd.Timings) string {
	row := fmt.Sprintf("%-8s %-38s", "", fmt.Sprintf("  honest %s, %d", kind, len(beset)))
	row += fmt.Sprintf(" p99 calm %8v, beside %8v  %5.1f times; slowest:", p99(calm), p99(beset), p99(beset).Seconds()/p99(calm).Seconds())
	slowest := beset[len(beset)*99/100:]
	for _, stage := range []struct {
		name string
		of   func(*kvd.Timings) time.Duration
	}{
		{"client queue", func(t *kvd.Timings) time.Duration { return t.ClientQueue }},
		{"network", func(t *kvd.Timings) time.Duration { return t.Network }},
		{"gate", func(t *kvd.Timings) time.Duration { return t.Gate }},
		{"inbox", func(t *kvd.Timings) time.Duration { return t.Inbox }},
		{"batch", func(t *kvd.Timings) time.Duration { return t.Batch }},
		{"log write", func(t *kvd.Timings) time.Duration { return t.LogWrite }},
		{"sync", func(t *kvd.Timings) time.Duration { return t.Sync }},
		{"engine", func(t *kvd.Timings) time.Duration { return t.Engine }},
		{"reply", func(t *kvd.Timings) time.Duration { return t.Reply }},
		{"return", func(t *kvd.Timings) time.Duration { return t.Return }},
	} {
		var sum time.Duration
		for i := range slowest {
			sum += stage.of(&slowest[i])
		}
		if mean := sum / time.Duration(max(len(slowest), 1)); mean >= 10*time.Microsecond {
			row += fmt.Sprintf(" %s %v", stage.name, mean.Round(10*time.Microsecond))
		}
	}
	return row
}

// honestPace is how many calls the test waits for, and the pause of an honest caller between
// two calls: none, and enough for a percentile, if that is looked at.
func honestPace() (calls int64, pause time.Duration) {
	if os.Getenv("MEMORY_P99") != "" {
		return 2000, 0
	}
	return 200, 2 * time.Millisecond
}

// waitForHonest waits for some honest calls.
func waitForHonest(t *testing.T) {
	calls, _ := honestPace()
	end := honestCalls.Load() + calls
	testwait.Until(t, func() bool { return honestCalls.Load() >= end || t.Failed() })
}

// waitForAttack waits until the attack has done what it does, and honest callers had
// their turn meanwhile and afterwards.
func waitForAttack(t *testing.T, events int64) {
	end := time.Now()
	if text := os.Getenv("MEMORY_SECONDS"); text != "" {
		seconds, err := strconv.Atoi(text)
		require.NoError(t, err, "MEMORY_SECONDS")
		end = end.Add(time.Duration(seconds) * time.Second)
	}
	waitForHonest(t)
	testwait.Until(t, func() bool { return progress.Load() >= events && !time.Now().Before(end) || t.Failed() })
	waitForHonest(t)
}

// resetPeak makes the peak of the process's memory what it occupies now.
func resetPeak(t *testing.T, s *server) {
	t.Helper()
	require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0))
}

// peakOf returns the most memory that the process had since resetPeak.
func peakOf(t *testing.T, s *server) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	require.True(t, found)
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	require.NoError(t, err)
	return kib << 10
}

// again does something on so many goroutines until ctx ends, counting what succeeds
// or is refused as such.
func again(ctx context.Context, t *testing.T, goroutines int, do func(i int) error) {
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; ctx.Err() == nil; i += goroutines {
				err := do(i)
				if err != nil && ctx.Err() == nil && !errors.Is(err, kvd.ErrOverloaded) {
					assert.NoError(t, err)
					return
				}
				progress.Add(1)
			}
		})
	}
	all.Wait()
}

// scanned is how many large values a scan of an attack reads: several of its batches.
const scanned = 3

func scanLarge(ctx context.Context, t *testing.T, s *server) {
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()), kvd.WithConns(4))
	if !assert.NoError(t, err) {
		return
	}
	again(ctx, t, 64, func(int) error {
		for _, err := range db.Scan(ctx, kvd.Prefix([]byte("large-")), kvd.Limit(scanned)) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	assert.NoError(t, db.Close())
}

// compute is the attack of the control: it keeps all processors busy.
func compute(ctx context.Context, _ *testing.T, _ *server) {
	progress.Add(1)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for ctx.Err() == nil {
			}
		})
	}
	all.Wait()
}

func conditionsOnLarge(ctx context.Context, t *testing.T, s *server) {
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()), kvd.WithConns(4))
	if !assert.NoError(t, err) {
		return
	}
	again(ctx, t, 256, func(i int) error {
		conditions := []kvd.WriteOption{kvd.IfVersion(1), kvd.IfAbsent(), kvd.IfValue([]byte("something else"))}
		err := db.Put(ctx, largeKey(i), nil, conditions[i%len(conditions)])
		if errors.Is(err, kvd.ErrConflict) {
			return nil
		}
		return err
	})
	assert.NoError(t, db.Close())
}

func writeLarge(ctx context.Context, t *testing.T, s *server) {
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()), kvd.WithConns(4))
	if !assert.NoError(t, err) {
		return
	}
	value := make([]byte, largeValue)
	again(ctx, t, 32, func(i int) error {
		return db.Put(ctx, fmt.Appendf(nil, "written-%d", i%8), value, kvd.Durable(kvd.Buffered))
	})
	assert.NoError(t, db.Close())
}

// deafConn reads nothing more once it is deaf.
type deafConn struct {
	net.Conn
	deaf   *atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		<-c.closed
		return 0, io.EOF
	}
	return n, err
}

func (c *deafConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// deafClient is a connection by gRPC that hears nothing once deaf is set; nil if there is
// none, which the test is told.
func deafClient(t *testing.T, s *server, deaf *atomic.Bool) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return &deafConn{Conn: c, deaf: deaf, closed: make(chan struct{})}, nil
		}))
	if !assert.NoError(t, err) {
		return nil
	}
	return conn
}

const deafConns = 8

// untilNoMore waits until a counter of what is sent stands still, and notes that as
// progress: then the server holds whatever it will.
func untilNoMore(ctx context.Context, sent *atomic.Int64) {
	for last, still := int64(-1), 0; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		now := sent.Load()
		if still++; now != last {
			last, still = now, 0
		}
		if still == 50 {
			progress.Add(1)
			<-ctx.Done()
		}
	}
}

func unreadUnary(ctx context.Context, t *testing.T, s *server) {
	var all sync.WaitGroup
	var sent atomic.Int64
	var deaf atomic.Bool
	clients := make([]kvdpb.KVServiceClient, deafConns)
	for i := range clients {
		conn := deafClient(t, s, &deaf)
		if conn == nil {
			return
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		clients[i] = kvdpb.NewKVServiceClient(conn)
		_, err := clients[i].Get(ctx, &kvdpb.GetRequest{Key: smallKey(0)})
		assert.NoError(t, err)
	}
	deaf.Store(true)
	for _, client := range clients {
		for i := range 64 {
			all.Go(func() {
				sent.Add(1)
				_, err := client.Get(ctx, &kvdpb.GetRequest{Key: largeKey(i)})
				_ = err // the client is deaf: it is the end of ctx, or of the connection
			})
		}
	}
	untilNoMore(ctx, &sent)
	all.Wait()
}

func unreadPipeline(ctx context.Context, t *testing.T, s *server) {
	var all sync.WaitGroup
	var sent atomic.Int64
	for range deafConns {
		var deaf atomic.Bool
		conn := deafClient(t, s, &deaf)
		if conn == nil {
			return
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		for range 8 {
			all.Go(func() {
				stream, err := kvdpb.NewKVServiceClient(conn).Pipeline(ctx)
				for i := 0; err == nil; i++ {
					err = stream.Send(&kvdpb.PipelineRequest{Ops: []*kvdpb.PipelineRequest_Op{{
						Tag: uint64(i), Op: &kvdpb.PipelineRequest_Op_Get{Get: &kvdpb.GetRequest{Key: largeKey(i)}}}}})
					sent.Add(1)
					if i == 100 {
						break
					}
				}
				<-ctx.Done()
			})
		}
	}
	untilNoMore(ctx, &sent)
	all.Wait()
}

func unreadRaw(ctx context.Context, t *testing.T, s *server) {
	var all sync.WaitGroup
	var sent atomic.Int64
	for range 4 * deafConns {
		conn, err := net.Dial("tcp", s.addr)
		if !assert.NoError(t, err) {
			return
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		_, err = io.WriteString(conn, frame.Preamble)
		if !assert.NoError(t, err) {
			return
		}
		_, err = io.ReadFull(bufio.NewReader(conn), make([]byte, len(frame.Preamble)))
		if !assert.NoError(t, err) {
			return
		}
		all.Go(func() {
			var b frame.Builder
			for i := range 100 {
				b.Reset(frame.ReadFrame)
				b.Add(&frame.Op{Kind: frame.Get, Key: largeKey(i)})
				if _, err := conn.Write(b.Finish(frame.Header{ID: uint32(i)})); err != nil {
					break
				}
				sent.Add(1)
			}
			<-ctx.Done()
		})
	}
	untilNoMore(ctx, &sent)
	all.Wait()
}
