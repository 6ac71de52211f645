package replica

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/cryptotest"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// The simulation runs a whole group in one goroutine. A scheduler draws from a seed what
// happens next, so a seed that fails does so again:
//
//	KVD_REPLICA_SEED=17 go test -run TestSimulation ./internal/replica     one seed, with its events
//	KVD_REPLICA_SEEDS=100000 go test -run TestSimulation ./internal/replica
const (
	seedVariable  = "KVD_REPLICA_SEED"
	seedsVariable = "KVD_REPLICA_SEEDS"

	defaultSeeds = 10_000
	shortSeeds   = 300 // with -short
	simSteps     = 2000

	// simGCPercent saves a quarter of the time of a simulation, which has some megabytes alive at a time.
	simGCPercent = 1600
)

func TestSimulation(t *testing.T) {
	testsize.OneGoroutine(t)
	if s := os.Getenv(seedVariable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, seedVariable)
		w := simulate(t, seed, true)
		t.Logf("%+v", w.counts)
		return
	}
	seeds := defaultSeeds
	if testing.Short() {
		seeds = shortSeeds
	}
	if s := os.Getenv(seedsVariable); s != "" {
		var err error
		seeds, err = strconv.Atoi(s)
		require.NoError(t, err, seedsVariable)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(simGCPercent))
	var sum counts
	for seed := range uint64(seeds) {
		sum.add(simulate(t, seed, false).counts)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d seeds: %+v", seeds, sum)
	if seeds >= shortSeeds {
		sum.requireAll(t)
	}
}

// Each seed gives the same run again.
func TestSimulationIsRepeatable(t *testing.T) {
	testsize.OneGoroutine(t)
	for seed := range uint64(5) {
		first, second := simulate(t, seed, false), simulate(t, seed, false)
		require.Equal(t, first.counts, second.counts)
		require.Equal(t, first.history, second.history)
	}
}

// counts says how often something happened, so that the simulation cannot become empty.
type counts struct {
	Steps, Entries, Committed, Dropped, Uncertain, Reads, FollowerReads          int
	Leaders, Tenures, Transfers, Crashes, CrashesInTurn, Faults, Damaged, Stale  int
	Lost, Repeated, Compactions, Replaced, Paused, Cuts, RefusedMessages, Queued int
	Configurations, Changes, RefusedChanges, Left, Removed                       int
	Offers, Fetched, CutTransfers, Installed                                     int
	Doubts, Forgotten, Lagged, Full                                              int
}

func (c *counts) all() []*int {
	return []*int{&c.Steps, &c.Entries, &c.Committed, &c.Dropped, &c.Uncertain, &c.Reads, &c.FollowerReads,
		&c.Leaders, &c.Tenures, &c.Transfers, &c.Crashes, &c.CrashesInTurn, &c.Faults, &c.Damaged, &c.Stale,
		&c.Lost, &c.Repeated, &c.Compactions, &c.Replaced, &c.Paused, &c.Cuts, &c.RefusedMessages, &c.Queued, &c.Configurations,
		&c.Changes, &c.RefusedChanges, &c.Left, &c.Removed,
		&c.Offers, &c.Fetched, &c.CutTransfers, &c.Installed, &c.Doubts, &c.Forgotten, &c.Lagged, &c.Full}
}

func (c *counts) add(o counts) {
	other := o.all()
	for i, n := range c.all() {
		*n += *other[i]
	}
}

func (c *counts) requireAll(t *testing.T) {
	for _, n := range c.all() {
		require.NotZero(t, *n, "something never happened: %+v", *c)
	}
}

const (
	simGroup   = 5
	simDir     = "data/raft"
	simSegment = 2 << 10
)

// world is a group, its network and its clients, and what must hold of them.
type world struct {
	t     *testing.T
	seed  uint64
	trace bool
	rng   *rand.Rand
	nodes []*simNode
	net   []*pb.Message
	cut   map[[2]uint64]bool
	loss  int // of 100 messages
	twice int
	calm  bool // nothing bad happens any more
	lags  bool // one Process applies few entries

	// reconfigures says that the configuration changes, and that no disk is damaged: the
	// healthy ones might be too few.
	reconfigures bool

	onSend func(*simNode, *pb.Message)

	nextID   uint64
	entries  map[[2]uint64]simEntry // by index and term: what any leader sent
	chosen   []chosenEntry          // by index: what the first state machine applied
	chosenIn map[uint64]uint64      // by index: a term at or above that in which it was committed
	confs    map[uint64]string      // by index
	at       map[uint64]uint64      // index at which a proposal was applied
	outcomes map[uint64]Outcome
	promised uint64            // index of the newest acknowledged write, or seen by an answered read
	leaders  map[uint64]uint64 // by term

	history []string
	counts  counts
}

type simEntry struct {
	before uint64 // term of the entry before it
	sum    uint64
}

type chosenEntry struct {
	term, sum, state uint64
}

// machine is the state of a node: a checksum of all records and the number of the last. A copy
// of it is what a flush makes durable.
type machine struct {
	w      *world
	node   *simNode
	at     Position
	number uint64
	state  uint64
	info   string // of the last change of the configuration
}

// simRecord is what a leader numbers: it names the term and the number in which it is good.
type simRecord struct {
	id, number, term uint64
}

func (r simRecord) encode(bytes int) []byte {
	b := fmt.Appendf(nil, "%d %d %d ", r.id, r.number, r.term)
	return append(b, strings.Repeat("x", bytes)...)
}

// parseRecord returns what encode has encoded.
func parseRecord(b []byte) (r simRecord, err error) {
	for _, field := range []*uint64{&r.id, &r.number, &r.term} {
		digits, rest, _ := bytes.Cut(b, []byte(" "))
		if *field, err = strconv.ParseUint(string(digits), 10, 64); err != nil {
			return r, err
		}
		b = rest
	}
	return r, nil
}

// hashOf is FNV-1a of numbers, in eight bytes each, and of data.
func hashOf(data []byte, numbers ...uint64) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, n := range numbers {
		for range 8 {
			h = (h ^ n&255) * prime
			n >>= 8
		}
	}
	for _, b := range data {
		h = (h ^ uint64(b)) * prime
	}
	return h
}

func (m *machine) Apply(index, term uint64, record []byte) error {
	w := m.w
	r, err := parseRecord(record)
	w.must(err == nil, "record %q", record)
	w.must(r.term == term, "record of term %d applied in term %d", r.term, term)
	w.must(index > m.at.Index, "index %d applied after %d", index, m.at.Index)
	w.must(r.number == m.number+1, "record %d at index %d applied after record %d", r.number, index, m.number)
	m.number = r.number
	m.at.Index, m.at.Term = index, term
	m.state = hashOf(nil, m.state, index, term, r.id, r.number, r.term)
	for uint64(len(w.chosen)) <= index {
		w.chosen = append(w.chosen, chosenEntry{})
	}
	e := chosenEntry{term, hashOf(nil, r.id, r.number, r.term), m.state}
	if w.chosen[index].term == 0 {
		w.chosen[index] = e
		w.chosenIn[index] = m.node.core.term
		w.counts.Entries++
	}
	w.must(w.chosen[index] == e, "state at index %d differs: %+v and %+v", index, w.chosen[index], e)
	if at := w.at[r.id]; at != 0 {
		w.must(at == index, "proposal %d applied at index %d and at %d", r.id, at, index)
	}
	w.at[r.id] = index
	w.must(w.outcomes[r.id].Result != Dropped, "proposal %d was dropped, and is at index %d", r.id, index)
	return nil
}

func (m *machine) Room() <-chan struct{} {
	if !m.w.lags || m.w.calm || !m.w.chance(10) {
		return nil
	}
	m.w.counts.Full++
	return make(chan struct{})
}

func (m *machine) Configure(index, term uint64, conf *pb.ConfState, info string) error {
	w := m.w
	m.info = info
	w.must(index > m.at.Index, "index %d applied after %d", index, m.at.Index)
	text := raft.DescribeConfState(conf)
	if w.confs[index] == "" {
		w.note("configuration at index %d: %s", index, text)
		w.confs[index] = text
		w.counts.Configurations++
	}
	w.must(w.confs[index] == text, "configuration at index %d differs: %s and %s", index, w.confs[index], text)
	m.at = Position{index, term, conf}
	return nil
}

// simNode is a node: what survives a crash, and what does not.
type simNode struct {
	w       *world
	id      uint64
	boots   uint64
	disk    *vfs.Mem
	durable machine  // what the state machine has flushed
	staged  *machine // a checkpoint that was received; nil: none

	fs      *faultfs.FS
	log     *raftlog.Log
	core    *Core // nil: down
	machine *machine
	paused  bool
	damaged bool      // its disk is; it stays down
	dirty   bool      // calls since the last Process
	fetches *transfer // nil: none
	serves  *machine  // a checkpoint on offer; nil: none

	tenure   Tenure // in which the proposer numbers
	number   uint64 // the last
	queue    []queued
	reported []uint64          // ids in the order of Propose, without an outcome
	reads    map[uint64]uint64 // by id: the index that the answer must include
}

// queued is a record on its way from its proposer to the Core, with its tenure.
type queued struct {
	tenure Tenure
	record simRecord
}

// must fails the run.
func (w *world) must(ok bool, format string, args ...any) {
	if ok {
		return
	}
	w.t.Fatalf("seed %d, step %d: %s\nreplay: %s=%d go test -run TestSimulation ./internal/replica\n%s",
		w.seed, w.counts.Steps, fmt.Sprintf(format, args...), seedVariable, w.seed, strings.Join(w.history[max(0, len(w.history)-30):], "\n"))
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%5d ", w.counts.Steps)+fmt.Sprintf(format, args...))
	if w.trace {
		w.t.Log(w.history[len(w.history)-1])
	}
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// newWorld starts a group of nodes without entries.
func newWorld(t *testing.T, seed uint64, size int) *world {
	cryptotest.SetGlobalRandom(t, seed)
	w := &world{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 17)), cut: map[[2]uint64]bool{}, entries: map[[2]uint64]simEntry{},
		at: map[uint64]uint64{}, outcomes: map[uint64]Outcome{}, leaders: map[uint64]uint64{}, confs: map[uint64]string{}, chosenIn: map[uint64]uint64{}, calm: true,
	}
	for _, b := range beginnings(t, size) {
		n := &simNode{w: w, id: b.node, disk: b.disk.KillImage()}
		n.durable.w, n.durable.node = w, n
		n.durable.at = b.at
		w.nodes = append(w.nodes, n)
		n.start()
	}
	return w
}

// beginning is a node of a group without entries, before it starts.
type beginning struct {
	node uint64
	disk *vfs.Mem // not to be changed
	at   Position
}

// begun has by their size the groups that newWorld has made: each is made once.
var begun sync.Map

func beginnings(t *testing.T, size int) []beginning {
	if all, ok := begun.Load(size); ok {
		return all.([]beginning)
	}
	var voters []uint64
	for i := range size {
		voters = append(voters, uint64(i+1))
	}
	var all []beginning
	for _, id := range voters {
		b := beginning{node: id, disk: vfs.NewMem()}
		require.NoError(t, b.disk.MkdirAll("data"))
		require.NoError(t, b.disk.SyncDir("/"))
		log, _, err := raftlog.Open((&simNode{id: id}).logOptions(b.disk, true))
		require.NoError(t, err)
		b.at, err = Bootstrap(log, simGroup, voters)
		require.NoError(t, err)
		require.NoError(t, log.Close())
		all = append(all, b)
	}
	begun.Store(size, all)
	return all
}

func simulate(t *testing.T, seed uint64, trace bool) *world {
	w := newWorld(t, seed, []int{5, 3, 3, 3, 5, 3, 3, 3, 1}[seed%9])
	w.trace, w.calm, w.reconfigures, w.lags = trace, false, seed%3 == 0, true
	for _, n := range w.nodes {
		n.lag()
	}
	w.loss, w.twice = w.rng.IntN(8), w.rng.IntN(15)
	for range simSteps {
		w.step()
	}
	w.heal()
	for _, n := range w.nodes {
		n.crash()
	}
	return w
}

func (n *simNode) logOptions(fsys vfs.FS, fresh bool) raftlog.Options {
	return raftlog.Options{FS: fsys, Dir: simDir, StoreID: n.id, SegmentBytes: simSegment, CacheBytes: 300, Fresh: fresh}
}

// start starts a node from its disk.
func (n *simNode) start() {
	w := n.w
	n.boots++
	n.fs = faultfs.Wrap(n.disk, nil)
	log, _, err := raftlog.Open(n.logOptions(n.fs, false))
	w.must(!n.damaged || err != nil, "node %d started with a damaged log", n.id)
	if n.damaged {
		w.must(errors.Is(err, kv.ErrCorrupt), "damage was reported as %v", err)
		return
	}
	w.must(err == nil, "node %d: %v", n.id, err)
	n.log = log
	if n.staged != nil {
		mark := must(log.Group(simGroup).Snapshot()).GetMetadata()
		if n.staged.at.Index == mark.GetIndex() && n.staged.at.Term == mark.GetTerm() {
			n.durable = *n.staged
			w.counts.Installed++
			w.note("node %d installs a checkpoint at index %d", n.id, mark.GetIndex())
		}
		n.staged = nil
	}
	m := n.durable
	n.machine = &m
	n.core, err = New(Config{ID: n.id, Boot: n.boots, Log: log, Group: simGroup, Start: m.at, Machine: n.machine, Transport: n, Checkpoints: n})
	w.must(err == nil, "node %d: %v", n.id, err)
	n.lag()
	n.fetches, n.serves = nil, nil
	n.tenure, n.queue, n.reported, n.reads, n.paused = Tenure{}, nil, nil, map[uint64]uint64{}, false
	w.checkLog(n)
	w.checkChanges(n)
}

// lag lets one Process of a node apply few entries.
func (n *simNode) lag() {
	if n.w.lags {
		n.core.backlog.entriesAtOnce = 1 + n.w.rng.IntN(4)
	}
}

// crash ends a node as power loss does, or kill -9.
func (n *simNode) crash() {
	if n.core == nil {
		return
	}
	for _, q := range n.queue {
		n.w.outcomes[q.record.id] = Outcome{ID: q.record.id, Result: Dropped} // never left its proposer
	}
	n.core = nil
	if n.w.chance(30) {
		n.disk = n.disk.KillImage()
		return
	}
	policy := vfs.CrashPolicies[n.w.rng.IntN(len(vfs.CrashPolicies))]
	n.disk = n.disk.CrashImage(policy, n.w.rng)
}

// Send implements Transport: the network.
func (n *simNode) Send(messages []*pb.Message) {
	w := n.w
	for _, m := range messages {
		w.must(m.GetFrom() == n.id || m.GetType() == pb.MsgReadIndex, "node %d sends as %d", n.id, m.GetFrom())
		if m.GetType() == pb.MsgApp {
			before := m.GetLogTerm()
			for _, e := range m.GetEntries() {
				w.checkEntry(e, before)
				before = e.GetTerm()
			}
		}
		if w.onSend != nil {
			w.onSend(n, m)
		}
		if w.cut[[2]uint64{n.id, m.GetTo()}] || !w.calm && w.chance(w.loss) {
			w.counts.Lost++
			continue
		}
		w.net = append(w.net, copyOf(m))
		if !w.calm && w.chance(w.twice) {
			w.counts.Repeated++
			w.net = append(w.net, copyOf(m))
		}
	}
}

// copyOf is proto.Clone, and takes less time for a message without a snapshot: what the
// copy points to is allocated with it.
func copyOf(m *pb.Message) *pb.Message {
	if m.Snapshot != nil || len(m.Responses) > 0 {
		return proto.Clone(m).(*pb.Message)
	}
	c := &messageCopy{}
	c.Type, c.Reject = copied(m.Type, &c.kind), copied(m.Reject, &c.reject)
	for i, f := range []struct{ to, from **uint64 }{
		{&c.To, &m.To}, {&c.From, &m.From}, {&c.Term, &m.Term}, {&c.LogTerm, &m.LogTerm}, {&c.Index, &m.Index},
		{&c.Commit, &m.Commit}, {&c.Vote, &m.Vote}, {&c.RejectHint, &m.RejectHint},
	} {
		*f.to = copied(*f.from, &c.numbers[i])
	}
	c.Context = bytes.Clone(m.Context)
	if len(m.Entries) > 0 {
		entries := make([]entryCopy, len(m.Entries))
		c.Entries = make([]*pb.Entry, len(entries))
		for i, e := range m.Entries {
			k := &entries[i]
			k.Type, k.Term, k.Index, k.Data = copied(e.Type, &k.kind), copied(e.Term, &k.term), copied(e.Index, &k.index), bytes.Clone(e.Data)
			c.Entries[i] = &k.Entry
		}
	}
	return &c.Message
}

// messageCopy is a message, and entryCopy an entry, with what it points to.
type (
	messageCopy struct {
		pb.Message
		numbers [8]uint64
		kind    pb.MessageType
		reject  bool
	}
	entryCopy struct {
		pb.Entry
		term, index uint64
		kind        pb.EntryType
	}
)

// copied copies what p points to, if anything, and returns where the copy is.
func copied[T any](p, to *T) *T {
	if p == nil {
		return nil
	}
	*to = *p
	return to
}

// A message of the simulation's network is what was sent, and shares nothing with it.
func TestCopyOf(t *testing.T) {
	entry := &pb.Entry{Type: pb.EntryConfChangeV2.Enum(), Term: new(uint64(7)), Index: new(uint64(8)), Data: []byte("data")}
	whole := &pb.Message{
		Type: pb.MsgAppResp.Enum(), To: new(uint64(1)), From: new(uint64(2)), Term: new(uint64(3)), LogTerm: new(uint64(4)), Index: new(uint64(5)),
		Entries: []*pb.Entry{entry, entry}, Commit: new(uint64(6)), Vote: new(uint64(9)), Reject: new(true), RejectHint: new(uint64(10)), Context: []byte("context"),
	}
	unset := 0
	for _, m := range []proto.Message{whole, entry} {
		unset += m.ProtoReflect().Descriptor().Fields().Len()
		m.ProtoReflect().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool { unset--; return true })
	}
	require.Equal(t, 2, unset, "the snapshot and the responses, which copyOf leaves to proto.Clone")
	for _, m := range []*pb.Message{whole, {}, {Type: pb.MsgHeartbeat.Enum(), Reject: new(false)}, {Snapshot: &pb.Snapshot{Data: []byte("token")}}} {
		c, want := copyOf(m), proto.Clone(m).(*pb.Message)
		require.True(t, proto.Equal(want, c), "%v", c)
		overwrite(m)
		require.True(t, proto.Equal(want, c), "%v", c)
	}
}

// overwrite changes all that a message points to.
func overwrite(m *pb.Message) {
	for _, p := range []*uint64{m.To, m.From, m.Term, m.LogTerm, m.Index, m.Commit, m.Vote, m.RejectHint} {
		if p != nil {
			*p += 100
		}
	}
	if m.Type != nil {
		*m.Type = pb.MsgHup
	}
	if m.Reject != nil {
		*m.Reject = !*m.Reject
	}
	clear(m.Context)
	clear(m.GetSnapshot().GetData())
	for _, e := range m.Entries {
		*e.Type, *e.Term, *e.Index = pb.EntryNormal, *e.Term+100, *e.Index+100
		clear(e.Data)
	}
}

// checkEntry checks log matching: an index and a term name one entry, which follows one other.
func (w *world) checkEntry(e *pb.Entry, before uint64) {
	key := [2]uint64{e.GetIndex(), e.GetTerm()}
	entry := simEntry{before, hashOf(e.GetData(), uint64(e.GetType()))}
	if known, ok := w.entries[key]; ok {
		w.must(known == entry, "entry %d of term %d differs", e.GetIndex(), e.GetTerm())
	}
	w.entries[key] = entry
}

// checkLog checks a whole log.
func (w *world) checkLog(n *simNode) {
	g := n.log.Group(simGroup)
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	before, err := g.Term(first - 1)
	w.must(err == nil, "node %d: %v", n.id, err)
	if last < first {
		return
	}
	entries, err := g.Entries(first, last+1, 1<<40)
	w.must(err == nil && uint64(len(entries)) == last+1-first, "node %d: %v", n.id, err)
	for _, e := range entries {
		w.checkEntry(e, before)
		before = e.GetTerm()
	}
}

// checkChanges checks that a node which starts knows of all changes of the configuration in its log but
// the last that they are committed: it asks for no votes before it has applied them.
func (w *world) checkChanges(n *simNode) {
	g := n.log.Group(simGroup)
	hard, _, err := g.InitialState()
	w.must(err == nil, "node %d: %v", n.id, err)
	last, _ := g.LastIndex()
	committed := max(hard.GetCommit(), n.durable.at.Index)
	if last <= committed {
		return
	}
	entries, err := g.Entries(committed+1, last+1, 1<<40)
	w.must(err == nil, "node %d: %v", n.id, err)
	changes := 0
	for _, e := range entries {
		if e.GetType() != pb.EntryNormal {
			changes++
		}
	}
	w.must(changes <= 1, "node %d starts with %d changes of the configuration after its commit index, %d", n.id, changes, committed)
}

// checkLeader checks election safety and leader completeness.
func (w *world) checkLeader(n *simNode, term uint64) {
	if leader := w.leaders[term]; leader != 0 {
		w.must(leader == n.id, "nodes %d and %d lead in term %d", leader, n.id, term)
		return
	}
	w.leaders[term] = n.id
	w.counts.Leaders++
	w.note("node %d leads in term %d", n.id, term)
	g := n.log.Group(simGroup)
	first, _ := g.FirstIndex()
	for i := first; i < uint64(len(w.chosen)); i++ {
		// A node may report late that it led: what later leaders committed does not count.
		if want := w.chosen[i].term; want != 0 && w.chosenIn[i] < term {
			got, err := g.Term(i)
			w.must(err == nil && got == want, "node %d leads in term %d without the committed entry %d of term %d: %d, %v", n.id, term, i, want, got, err)
		}
	}
}

// process lets the Core of a node do its work, and checks what it reports.
func (n *simNode) process() {
	w := n.w
	out, err := n.core.Process()
	if n.dirty = out.More; out.More {
		w.counts.Lagged++
	}
	for _, o := range out.Outcomes {
		w.must(len(n.reported) > 0 && n.reported[0] == o.ID, "outcome %+v of node %d, expected are %v", o, n.id, n.reported)
		n.reported = n.reported[1:]
		w.outcome(o)
	}
	for _, id := range out.Reads {
		need, ok := n.reads[id]
		w.must(ok, "read %d of node %d answered twice", id, n.id)
		delete(n.reads, id)
		at := n.core.Status().Applied.Index
		w.must(at >= need, "read %d of node %d sees index %d, and must see %d", id, n.id, at, need)
		w.promised = max(w.promised, at)
		w.counts.Reads++
		if n.core.role.Lead != n.id {
			w.counts.FollowerReads++
		}
	}
	if err != nil {
		w.must(len(n.reported) == 0, "node %d ended with %v, and did not report %v", n.id, err, n.reported)
		w.must(n.fs.Fired() || errors.Is(err, ErrInstall), "node %d ended: %v", n.id, err)
		_, again := n.core.Process()
		w.must(again == err && n.core.Step(&pb.Message{}) != nil, "node %d goes on after %v", n.id, err)
		w.note("node %d ended: %v", n.id, err)
		w.counts.CrashesInTurn++
		n.crash()
		return
	}
	s := n.core.Status()
	w.must(s.Applied.Index <= s.Committed, "node %d applied %d of %d", n.id, s.Applied.Index, s.Committed)
	w.must(n.machine.at.Index <= s.Applied.Index, "node %d", n.id)
	if s.Leading {
		w.checkLeader(n, s.Term)
	}
	if t, open := n.core.Tenure(); open && t != n.tenure {
		w.must(s.Leading && s.Term == t.Term && len(n.reported) == 0, "tenure %+v of node %d began with %v under way", t, n.id, n.reported)
		n.tenure, n.number = t, n.machine.number
		w.counts.Tenures++
	}
}

// processAll is process until nothing is left to apply. The state machine has room.
func (n *simNode) processAll() {
	for n.dirty = true; n.dirty && n.core != nil; {
		n.process()
	}
}

func (w *world) outcome(o Outcome) {
	w.must(w.outcomes[o.ID].Result == 0, "second outcome %+v", o)
	w.outcomes[o.ID] = o
	switch o.Result {
	case Committed:
		w.must(w.at[o.ID] == o.Index, "outcome %+v, but it is at index %d", o, w.at[o.ID])
		w.promised = max(w.promised, o.Index)
		w.counts.Committed++
	case Dropped:
		w.must(w.at[o.ID] == 0, "outcome %+v, but it is at index %d", o, w.at[o.ID])
		w.counts.Dropped++
	case Uncertain:
		w.counts.Uncertain++
	default:
		w.must(false, "outcome %+v", o)
	}
}

// numberRecord lets the proposer of a node number a record, if it believes to be in a tenure.
func (n *simNode) numberRecord() {
	if n.tenure == (Tenure{}) {
		return
	}
	n.w.nextID++
	n.number++
	n.queue = append(n.queue, queued{n.tenure, simRecord{n.w.nextID, n.number, n.tenure.Term}})
	n.w.counts.Queued++
}

// propose hands queued records to the Core.
func (n *simNode) propose() {
	w := n.w
	for len(n.queue) > 0 {
		q := n.queue[0]
		err := n.core.Propose(q.tenure, q.record.id, q.record.encode(w.rng.IntN(60)))
		if n.core.Err() != nil {
			w.must(errors.Is(err, kv.ErrFailed) && n.fs.Fired(), "propose: %v", err)
			return
		}
		w.must(err == nil, "propose: %v", err)
		n.queue = n.queue[1:]
		n.reported = append(n.reported, q.record.id)
		if t, open := n.core.Tenure(); !open || t != q.tenure {
			w.counts.Stale++
		}
	}
}

func (n *simNode) read() {
	n.w.nextID++
	n.reads[n.w.nextID] = n.w.promised
	n.w.must(n.core.Read(n.w.nextID) == nil || n.fs.Fired(), "read")
}

// deliver gives a message to its node, if that is there.
func (w *world) deliver(i int) {
	m := w.net[i]
	copy(w.net[1:i+1], w.net[:i]) // what is delivered is mostly old: few messages are before it
	w.net[0] = nil
	w.net = w.net[1:]
	if m.GetTo() > uint64(len(w.nodes)) || w.nodes[m.GetTo()-1].core == nil {
		w.counts.Lost++
		return
	}
	n := w.nodes[m.GetTo()-1]
	if err := n.core.Step(m); err != nil {
		w.must(errors.Is(err, kv.ErrInvalidArgument) && m.GetFrom() == n.id || n.fs.Fired(), "step: %v", err)
		w.counts.RefusedMessages++
	}
	n.dirty = true
}

// awake returns a random node that is up and not paused; nil if it drew another one.
func (w *world) awake() *simNode {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.core == nil || n.paused {
		return nil
	}
	return n
}

// step does one thing that a draw chooses.
func (w *world) step() {
	w.counts.Steps++
	n := w.awake()
	switch draw := w.rng.IntN(1000); {
	case draw < 450:
		w.deliverSome()
	case draw < 470:
		w.disturb()
	case n == nil:
	case draw < 660:
		for range 1 + w.rng.IntN(3) {
			n.tick()
		}
		n.dirty = true
	case draw < 670: // as long as an election timeout
		for range electionTicks + w.rng.IntN(electionTicks) {
			n.core.Tick()
		}
		n.dirty = true
	case draw < 800:
		n.numberRecord()
		if w.chance(70) {
			n.propose()
			n.dirty = true
		}
	case draw < 860:
		n.read()
		n.dirty = true
	case draw < 890:
		if n.durable = *n.machine; w.chance(30) {
			w.compact(n)
		}
	case draw < 900:
		if n.core.Transfer(1+w.rng.Uint64N(uint64(len(w.nodes)))) == nil {
			w.counts.Transfers++
			n.dirty = true
		}
	case draw < 915:
		if w.reconfigures {
			w.reconfigure(n)
		}
	case draw < 930:
		n.transfer()
	case draw < 940:
		w.doubt(n.core.role.Lead)
	default:
		n.process()
	}
	if w.chance(50) {
		for _, n := range w.nodes {
			if n.dirty && n.core != nil && !n.paused {
				n.process()
			}
		}
	}
}

// doubt tells some nodes that the process of a node has ended, be it so or not.
func (w *world) doubt(id uint64) {
	for _, n := range w.nodes {
		if n.core != nil && !n.paused && w.chance(80) {
			n.core.Gone(id)
			if n.core.doubt != (doubt{}) {
				w.counts.Doubts++
			}
		}
	}
}

// tick lets a tick pass for a node.
func (n *simNode) tick() {
	before := n.core.Status().Leader
	n.core.Tick()
	if now := n.core.Status(); n.core.Err() == nil && before != 0 && now.Leader == 0 && !now.Campaigns {
		n.w.counts.Forgotten++
	}
}

// reconfigure asks a node for one or two changes of any kind. A node that is removed keeps its
// disk, so it may come back under its id.
func (w *world) reconfigure(n *simNode) {
	var changes []Change
	for range 1 + w.rng.IntN(2) {
		changes = append(changes, Change{AddLearner + ChangeKind(w.rng.IntN(4)), 1 + w.rng.Uint64N(uint64(len(w.nodes)))})
	}
	w.change(n, changes...)
}

// change asks a node for changes of the configuration, and reports whether it took them.
func (w *world) change(n *simNode, changes ...Change) bool {
	n.dirty = true
	err := n.core.Reconfigure(changes...)
	var elsewhere *NotLeadingError
	switch {
	case err == nil:
		w.note("node %d: %v", n.id, changes)
		w.counts.Changes++
		return true
	case errors.As(err, &elsewhere) && elsewhere.Leaving:
		w.counts.Left++
	case errors.As(err, &elsewhere), errors.Is(err, ErrBusy), errors.Is(err, kv.ErrInvalidArgument):
		w.counts.RefusedChanges++
	default:
		w.must(n.fs.Fired(), "change: %v", err)
	}
	return false
}

// restore adds the nodes that were removed. It reports whether the group has all nodes.
func (w *world) restore() bool {
	for _, n := range w.nodes {
		if _, open := n.tenureNow(); !open {
			continue
		}
		if s := n.core.Status(); s.Applied.Index < s.Last {
			return false // a change may be among what is left to apply
		}
		for _, m := range w.nodes {
			if !done(n.core.Status().Applied.Conf, Change{Promote, m.id}) && !done(n.core.Status().Applied.Conf, Change{AddLearner, m.id}) {
				w.counts.Removed++
				w.change(n, Change{AddLearner, m.id})
				return false
			}
		}
		return true
	}
	return false
}

// deliverSome delivers some messages, mostly old ones.
func (w *world) deliverSome() {
	for range 1 + w.rng.IntN(6) {
		if len(w.net) == 0 {
			return
		}
		i := w.rng.IntN(min(len(w.net), 3))
		if w.chance(15) {
			i = w.rng.IntN(len(w.net))
		}
		if to := w.nodes[w.net[i].GetTo()-1]; !to.paused {
			w.deliver(i)
		}
	}
}

// compact lets a node give up entries that it has applied durably: those that a follower lacks,
// or not.
func (w *world) compact(n *simNode) {
	free, most := n.durable.at.Index, uint64(0)
	if w.chance(50) {
		most = free - w.rng.Uint64N(min(free, 5))
	}
	if first, _ := n.log.Group(simGroup).FirstIndex(); free >= first && !n.fs.Fired() {
		w.must(n.core.Compact(free, most) == nil || n.fs.Fired(), "compact")
		w.counts.Compactions++
	}
}

// disturb breaks something, or mends it.
func (w *world) disturb() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if w.chance(50) {
		w.mend()
		return
	}
	switch w.rng.IntN(7) {
	case 0, 1:
		if n.core == nil {
			w.restart(n)
			return
		}
		w.note("node %d crashes", n.id)
		w.counts.Crashes++
		n.crash()
		w.doubt(n.id)
	case 2:
		if n.core == nil {
			w.restart(n)
			return
		}
		fault := faultfs.Fault{Err: syscall.EIO, DropDirty: w.chance(50), Short: w.rng.IntN(100)}
		n.fs.SetInjector(faultfs.At(w.rng.IntN(3), true, fault, faultfs.OnKind(faultfs.Write, faultfs.Sync, faultfs.Create)))
		w.counts.Faults++
	case 3:
		n.paused = !n.paused && n.core != nil
		w.counts.Paused++
		w.note("node %d paused: %v", n.id, n.paused)
	case 4, 5:
		link := [2]uint64{n.id, 1 + w.rng.Uint64N(uint64(len(w.nodes)))}
		w.cut[link] = !w.cut[link]
		w.counts.Cuts++
		if w.chance(50) { // both directions
			w.cut[[2]uint64{link[1], link[0]}] = w.cut[link]
		}
		w.note("link %v cut: %v", link, w.cut[link])
	case 6:
		for _, other := range w.nodes { // alone
			if other != n {
				w.cut[[2]uint64{n.id, other.id}], w.cut[[2]uint64{other.id, n.id}] = true, true
			}
		}
		w.note("node %d is alone", n.id)
	}
}

// mend starts the nodes that are down, and lets all links and nodes work.
func (w *world) mend() {
	w.note("all works again")
	clear(w.cut)
	for _, n := range w.nodes {
		if n.paused = false; n.core == nil {
			w.restart(n)
		}
	}
}

// restart starts a node that is down. The disks of a minority may be damaged meanwhile.
func (w *world) restart(n *simNode) {
	if n.damaged {
		return
	}
	damaged := 0
	for _, m := range w.nodes {
		if m.damaged {
			damaged++
		}
	}
	if !w.calm && !w.reconfigures && w.chance(5) && damaged < (len(w.nodes)-1)/2 && n.damage() {
		w.note("the log of node %d is damaged", n.id)
		w.counts.Damaged++
		n.damaged = true
	}
	w.note("node %d starts", n.id)
	n.start()
}

// damage flips a bit of the log that a later frame says was synced.
func (n *simNode) damage() bool {
	names, err := n.disk.List(simDir)
	n.w.must(err == nil && len(names) > 0, "list: %v", err)
	name := simDir + "/" + names[len(names)-1]
	f, err := n.disk.OpenReadWrite(name)
	n.w.must(err == nil, "open: %v", err)
	size, _ := f.Size()
	b := make([]byte, size)
	_, _ = f.ReadAt(b, 0)
	const header = 64
	synced := uint64(0)
	for off := header; off+header <= len(b); off += 8 {
		if string(b[off:off+4]) == "RFRM" && fmt.Sprintf("%06d.raft", le(b[off+40:])) == names[len(names)-1] {
			synced = max(synced, le(b[off+48:]))
		}
	}
	if synced <= header || synced >= uint64(size) {
		return false
	}
	at := header + n.w.rng.Int64N(int64(synced)-header)
	_, err = f.WriteAt([]byte{b[at] ^ 1<<n.w.rng.IntN(8)}, at)
	n.w.must(err == nil && f.Sync() == nil && f.Close() == nil, "damage: %v", err)
	return true
}

func le(b []byte) (n uint64) {
	for i := range 8 {
		n |= uint64(b[i]) << (8 * i)
	}
	return n
}

// heal mends everything but damaged disks, and expects the group to work: every read is
// answered, a record is committed, and all nodes have the same state.
func (w *world) heal() {
	w.calm = true
	for _, n := range w.nodes {
		if n.core != nil {
			n.fs.SetInjector(nil)
			n.process()
		}
	}
	w.mend()
	if w.reconfigures {
		w.settle(w.restore)
	}
	last := uint64(0)
	w.settle(func() bool {
		for _, n := range w.nodes {
			if _, open := n.tenureNow(); open && last == 0 {
				n.queue = slices.DeleteFunc(n.queue, func(q queued) bool { return q.tenure != n.tenure })
				n.numberRecord()
				n.propose()
				if len(n.queue) == 0 {
					last = w.nextID
				}
			}
		}
		switch w.outcomes[last].Result {
		case Committed:
			return true
		case Dropped, Uncertain:
			last = 0
		}
		return false
	})
	for _, n := range w.nodes {
		if n.core != nil {
			n.read()
		}
	}
	w.settle(func() bool {
		for _, n := range w.nodes {
			if n.core != nil && (len(n.reads) > 0 || n.machine.at.Index < w.at[last] || len(n.reported) > 0) {
				return false
			}
		}
		return true
	})
	for _, n := range w.nodes {
		if n.core != nil {
			w.must(n.machine.state == w.chosen[len(w.chosen)-1].state, "node %d is at %d of %d", n.id, n.machine.at.Index, len(w.chosen)-1)
			w.checkLog(n)
		}
	}
	for key := range w.entries {
		if key[0] < uint64(len(w.chosen)) && w.entries[[2]uint64{key[0], w.chosen[key[0]].term}] != (simEntry{}) && key[1] != w.chosen[key[0]].term {
			w.counts.Replaced++
		}
	}
	for id, o := range w.outcomes {
		w.must(o.Result != Committed || w.at[id] == o.Index, "%+v is at %d", o, w.at[id])
	}
}

func (n *simNode) tenureNow() (Tenure, bool) {
	if n.core == nil {
		return Tenure{}, false
	}
	return n.core.Tenure()
}

// settle lets time pass, with a network that works, until done.
func (w *world) settle(done func() bool) {
	for range 300 {
		for _, n := range w.nodes {
			if n.core == nil && n.staged != nil && !n.damaged {
				n.start()
			}
			if n.core != nil {
				n.core.Tick()
				n.transfer()
			}
			n.processAll()
		}
		for len(w.net) > 0 {
			for range len(w.net) {
				w.deliver(0)
			}
			for _, n := range w.nodes {
				if n.dirty {
					n.processAll()
				}
			}
		}
		if done() {
			return
		}
	}
	for _, n := range w.nodes {
		if n.core != nil {
			first, _ := n.log.Group(simGroup).FirstIndex()
			last, _ := n.log.Group(simGroup).LastIndex()
			w.note("node %d: log %d to %d, %+v, tenure %v, reads %v, without outcome %v", n.id, first, last, n.core.Status(), n.core.proposals, n.reads, n.reported)
			w.note("node %d: %v", n.id, n.core.node.Status())
		}
	}
	w.must(false, "the group does not work again")
}
