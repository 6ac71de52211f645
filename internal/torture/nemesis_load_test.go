package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/torture/history"
	"github.com/kvd-db/kvd/pkg/kvd"
)

const (
	// sharedKeys is how many keys of the history all users read and write. The keys above them are
	// marks: every write that removes keys, and every transaction, puts one of its own. So a read
	// of the marks at the end settles what became of those without an answer.
	sharedKeys = 200
	maxMarks   = 4_000_000
	sums       = 4
)

// load is what many users do to a cluster at the same time, each through a client of its own that
// lives until the end. What they saw is judged by three oracles: package history replays the
// shared keys by version; porcupine judges registers, which no version helps; counters have been
// incremented once for each acknowledgement.
type load struct {
	t         *testing.T
	start     time.Time
	pause     time.Duration // of a user after each operation
	users     []*user
	ended     chan struct{}
	running   sync.WaitGroup
	marks     atomic.Int64
	registers [8]register
	counted   [sums]struct{ acknowledged, unknown atomic.Int64 }

	mu      sync.Mutex
	acks    int
	last    time.Time     // the newest acknowledgement of a write, or call of lull
	longest time.Duration // between two acknowledgements since lull
	slowest time.Duration // operation since lull
	unknown int           // outcomes of writes, since lull
	ops     map[string]int
	errs    map[string]int
}

// beginLoad starts users on all nodes. They begin at different ones; of four, one has a client that
// speaks gRPC alone, and one a client that knows one node, which has the leader perform its writes.
func beginLoad(t *testing.T, c *nodes, users int, pause time.Duration, seed uint64) *load {
	l := &load{t: t, start: time.Now(), pause: pause, ended: make(chan struct{}), ops: map[string]int{}, errs: map[string]int{}}
	l.last = l.start
	for i := range users {
		first := i % len(c.all)
		var opts []kvd.Option
		if i%4 == 3 {
			opts = append(opts, kvd.WithoutRawFrames())
		}
		known := append(append([]*node{}, c.all[first:]...), c.all[:first]...)
		if i%4 == 2 {
			known = known[:1]
		}
		u := &user{
			load: l, number: uint16(i), rng: rand.New(rand.NewPCG(seed, uint64(i))), values: history.Value(i) << 26,
			db:    c.open(t, known, opts...),
			known: map[history.Key]history.Read{}, saw: map[string]string{}, registers: map[string][]porcupine.Operation{},
		}
		l.users = append(l.users, u)
		l.running.Go(u.work)
	}
	return l
}

// end stops the users, and waits for their last answers.
func (l *load) end() {
	close(l.ended)
	l.running.Wait()
}

func (l *load) close() {
	for _, u := range l.users {
		assert.NoError(l.t, u.db.Close())
	}
}

// acknowledged returns how many writes were.
func (l *load) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acks
}

// lull returns the longest time without an acknowledged write, the slowest operation that ended, and
// how many writes ended without a known outcome, since the last call.
func (l *load) lull() (longest, slowest time.Duration, unknown int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest, slowest, unknown = l.longest, l.slowest, l.unknown
	l.longest, l.slowest, l.unknown, l.last = 0, 0, 0, time.Now()
	return longest, slowest, unknown
}

// legal lists the errors that a client may get while nodes fail.
var legal = []error{
	kvd.ErrUncertain, kvd.ErrConflict, kvd.ErrUnavailable, kvd.ErrReadOnly, kvd.ErrVersionGone, kvd.ErrOverloaded, context.DeadlineExceeded,
}

// done notes an operation that has ended, and returns its outcome.
func (l *load) done(what string, isWrite bool, call int64, err error) history.Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops[what]++
	l.slowest = max(l.slowest, time.Duration(l.now()-call))
	if err == nil {
		if isWrite {
			now := time.Now()
			l.longest = max(l.longest, now.Sub(l.last))
			l.last = now
			l.acks++
		}
		return history.Done
	}
	known := false
	for _, e := range legal {
		known = known || errors.Is(err, e)
	}
	assert.True(l.t, known, "%s: %v", what, err)
	l.errs[what+": "+err.Error()]++
	if isWrite && errors.Is(err, kvd.ErrUncertain) {
		l.unknown++
		return history.Unknown
	}
	return history.Refused
}

func (l *load) now() int64 { return int64(time.Since(l.start)) }

// user is one of those who use the cluster.
type user struct {
	load   *load
	db     *kvd.Client
	number uint16
	rng    *rand.Rand

	log    history.Log
	values history.Value
	known  map[history.Key]history.Read
	lost   []history.Key // marks of writes without an answer

	registers map[string][]porcupine.Operation
	saw       map[string]string // what a register held when it was read last
}

func (u *user) work() {
	ctx := context.Background()
	steps := []func(context.Context){
		u.get, u.put, u.put, u.putIfUnchanged, u.apply, u.apply, u.execute, u.view, u.view, u.update, u.update, u.update,
		u.register, u.register, u.register, u.register, u.register, u.register, u.increment, u.increment,
	}
	for {
		select {
		case <-u.load.ended:
			return
		default:
		}
		steps[u.rng.IntN(len(steps))](ctx)
		time.Sleep(u.load.pause)
	}
}

func (u *user) key() history.Key { return history.Key(u.rng.IntN(sharedKeys)) }

func (u *user) value() history.Value {
	u.values++
	return u.values
}

// mark returns the put of a key that no other write has.
func (u *user) mark() history.Write {
	return history.Write{Key: history.Key(sharedKeys + u.load.marks.Add(1)), Value: u.value()}
}

// keep records a write of the history.
func (u *user) keep(o history.Op) {
	if o.Outcome == history.Refused {
		return
	}
	o.Kind, o.Client = history.Commit, u.number
	u.log.Add(o)
}

// read translates what the client returned of a key.
func (u *user) read(k history.Key, item kvd.Item, found bool) history.Read {
	r := history.Read{Key: k}
	if found {
		v, err := history.ParseValue(k, item.Value)
		assert.NoError(u.load.t, err)
		r.Value, r.Version = v, kv.SeqNum(item.Version)
	}
	u.known[k] = r
	return r
}

// view records reads of the history.
func (u *user) saw1(o history.Op) {
	o.Outcome, o.Client = history.Done, u.number
	u.log.Add(o)
}

func (u *user) get(ctx context.Context) {
	k, call := u.key(), u.load.now()
	item, err := u.db.GetItem(ctx, k.Bytes())
	if errors.Is(err, kvd.ErrNotFound) {
		u.load.done("get", false, call, nil) // the answer has no version
		return
	}
	if u.load.done("get", false, call, err) == history.Done {
		u.saw1(history.Op{Kind: history.Get, Call: call, Return: u.load.now(), Reads: []history.Read{u.read(k, item, true)}})
	}
}

func (u *user) put(ctx context.Context) {
	w := history.Write{Key: u.key(), Value: u.value()}
	call := u.load.now()
	got, err := u.db.PutItem(ctx, w.Key.Bytes(), w.Value.Bytes(w.Key))
	outcome := u.load.done("put", true, call, err)
	u.keep(history.Op{Outcome: outcome, Call: call, Return: u.load.now(), Version: kv.SeqNum(got.Version), Writes: []history.Write{w}})
}

// putIfUnchanged puts a key if it is as the user has seen it last.
func (u *user) putIfUnchanged(ctx context.Context) {
	w := history.Write{Key: u.key(), Value: u.value()}
	was, ok := u.known[w.Key]
	if !ok {
		return
	}
	call := u.load.now()
	got, err := u.db.PutItem(ctx, w.Key.Bytes(), w.Value.Bytes(w.Key), kvd.IfVersion(uint64(was.Version)))
	outcome := u.load.done("put if unchanged", true, call, err)
	u.keep(history.Op{
		Outcome: outcome, Call: call, Return: u.load.now(), Version: kv.SeqNum(got.Version),
		Reads: []history.Read{was}, Writes: []history.Write{w},
	})
	delete(u.known, w.Key)
}

// apply writes a batch that puts keys, deletes one, and sometimes a range.
func (u *user) apply(ctx context.Context) {
	writes := []history.Write{u.mark()}
	var b kvd.Batch
	if u.rng.IntN(3) == 0 {
		from := u.key()
		w := history.Write{Key: from, End: min(from+1+history.Key(u.rng.IntN(4)), sharedKeys)}
		writes = append(writes, w)
		b.DeleteRange(kvd.Between(w.Key.Bytes(), w.End.Bytes()))
	}
	gone := history.Write{Key: u.key()}
	writes = append(writes, gone)
	b.Delete(gone.Key.Bytes())
	for k := range 1 + u.rng.IntN(3) {
		writes = append(writes, history.Write{Key: (gone.Key + history.Key(k) + 1) % sharedKeys, Value: u.value()})
	}
	for _, w := range writes {
		if w.Value != history.Absent {
			b.Put(w.Key.Bytes(), w.Value.Bytes(w.Key))
		}
	}
	call := u.load.now()
	version, err := u.db.Apply(ctx, &b)
	outcome := u.load.done("apply", true, call, err)
	u.settled(outcome, writes[0].Key)
	u.keep(history.Op{Outcome: outcome, Call: call, Return: u.load.now(), Version: kv.SeqNum(version), Writes: writes})
}

// settled notes the mark of a write without an answer.
func (u *user) settled(o history.Outcome, mark history.Key) {
	if o == history.Unknown {
		u.lost = append(u.lost, mark)
	}
}

// execute puts one of two keys, depending on a third.
func (u *user) execute(ctx context.Context) {
	k := u.key()
	then, otherwise := history.Write{Key: (k + 1) % sharedKeys, Value: u.value()}, history.Write{Key: (k + 2) % sharedKeys, Value: u.value()}
	var thenBatch, elseBatch kvd.Batch
	thenBatch.Put(then.Key.Bytes(), then.Value.Bytes(then.Key))
	elseBatch.Put(otherwise.Key.Bytes(), otherwise.Value.Bytes(otherwise.Key))
	call := u.load.now()
	got, err := u.db.Execute(ctx, kvd.Execution{If: []kvd.Guard{{Key: k.Bytes(), Condition: kvd.IfPresent()}}, Then: &thenBatch, Else: &elseBatch})
	o := history.Op{Outcome: u.load.done("execute", true, call, err), Call: call, Return: u.load.now(), Version: kv.SeqNum(got.Version)}
	switch {
	case o.Outcome == history.Unknown: // either, or none
		o.Writes = []history.Write{then}
		u.keep(o)
		o.Writes = []history.Write{otherwise}
	case got.Succeeded:
		o.Reads, o.Writes = []history.Read{{Key: k, Value: history.Unseen}}, []history.Write{then}
	default:
		o.Reads, o.Writes = []history.Read{{Key: k}}, []history.Write{otherwise}
	}
	u.keep(o)
}

// reader is what a snapshot and a transaction have in common.
type reader interface {
	kvd.Reader
	Version() uint64
}

// look reads some keys and a range.
func (u *user) look(ctx context.Context, r reader) (reads []history.Read, scan history.Scan, err error) {
	from := u.key()
	for i := range history.Key(1 + u.rng.IntN(3)) {
		k := (from + 7*i) % sharedKeys
		item, err := r.GetItem(ctx, k.Bytes())
		if err != nil && !errors.Is(err, kvd.ErrNotFound) {
			return nil, scan, err
		}
		reads = append(reads, u.read(k, item, err == nil))
	}
	scan.From = u.key()
	scan.To = min(scan.From+history.Key(1+u.rng.IntN(6)), sharedKeys)
	for item, err := range r.Scan(ctx, kvd.Between(scan.From.Bytes(), scan.To.Bytes())) {
		if err != nil {
			return nil, scan, err
		}
		k, err := history.ParseKey(item.Key)
		assert.NoError(u.load.t, err)
		scan.Seen = append(scan.Seen, u.read(k, item, true))
	}
	return reads, scan, nil
}

func (u *user) view(ctx context.Context) {
	o := history.Op{Kind: history.Snapshot, Call: u.load.now()}
	err := u.db.View(ctx, func(s *kvd.Snapshot) error {
		reads, scan, err := u.look(ctx, s)
		o.Reads, o.Scans, o.ReadVersion = reads, []history.Scan{scan}, kv.SeqNum(s.Version())
		return err
	})
	if u.load.done("view", false, o.Call, err) == history.Done {
		o.Return = u.load.now()
		u.saw1(o)
	}
}

// update runs a transaction that writes some of what it has read.
func (u *user) update(ctx context.Context) {
	o := history.Op{Call: u.load.now()}
	var last *kvd.Txn
	err := u.db.Update(ctx, func(tx *kvd.Txn) error {
		last = tx
		reads, scan, err := u.look(ctx, tx)
		if err != nil {
			return err
		}
		o.Reads, o.Scans, o.ReadVersion = reads, []history.Scan{scan}, kv.SeqNum(tx.Version())
		o.Writes = []history.Write{u.mark()}
		for i, r := range reads {
			w := history.Write{Key: r.Key}
			if i > 0 || u.rng.IntN(4) > 0 {
				w.Value = u.value()
			}
			o.Writes = append(o.Writes, w)
		}
		for _, w := range o.Writes {
			if w.Value == history.Absent {
				err = errors.Join(err, tx.Delete(ctx, w.Key.Bytes()))
			} else {
				err = errors.Join(err, tx.Put(ctx, w.Key.Bytes(), w.Value.Bytes(w.Key)))
			}
		}
		return err
	})
	o.Outcome, o.Return, o.Version = u.load.done("update", true, o.Call, err), u.load.now(), kv.SeqNum(last.CommittedVersion())
	if o.Outcome == history.Unknown {
		u.settled(o.Outcome, o.Writes[0].Key)
	}
	u.keep(o)
}

// increment adds one to a counter, by a transaction or by a condition on what was read.
func (u *user) increment(ctx context.Context) {
	n := u.rng.IntN(sums)
	key := []byte(fmt.Sprintf("counter-%d", n))
	call := u.load.now()
	var err error
	if u.rng.IntN(2) == 0 {
		err = u.db.Update(ctx, func(tx *kvd.Txn) error {
			v, err := tx.Get(ctx, key)
			if err != nil && !errors.Is(err, kvd.ErrNotFound) {
				return err
			}
			return tx.Put(ctx, key, oneMore(u.load.t, v))
		})
	} else {
		item, e := u.db.GetItem(ctx, key)
		if e != nil && !errors.Is(e, kvd.ErrNotFound) {
			u.load.done("increment: get", false, call, e)
			return
		}
		_, err = u.db.PutItem(ctx, key, oneMore(u.load.t, item.Value), kvd.IfVersion(item.Version))
	}
	switch u.load.done("increment", true, call, err) {
	case history.Done:
		u.load.counted[n].acknowledged.Add(1)
	case history.Unknown:
		u.load.counted[n].unknown.Add(1)
	}
}

func oneMore(t *testing.T, v []byte) []byte {
	if v == nil {
		return []byte("1")
	}
	n, err := strconv.Atoi(string(v))
	assert.NoError(t, err)
	return strconv.AppendInt(nil, int64(n+1), 10)
}

// errorsSeen returns the counts of errors, without what differs from one to the next.
func (l *load) errorsSeen() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.errs)
}

// check judges what the users saw, with the final state that db shows.
func (l *load) check(ctx context.Context, db *kvd.Client) *history.Report {
	logs := []*history.Log{l.final(ctx, db)}
	registers := map[string][]porcupine.Operation{}
	for _, u := range l.users {
		logs = append(logs, &u.log)
		for key, ops := range u.registers {
			registers[key] = append(registers[key], ops...)
		}
	}
	for i := range sums {
		v, err := db.Get(ctx, []byte(fmt.Sprintf("counter-%d", i)))
		require.NoError(l.t, err)
		n, err := strconv.ParseInt(string(v), 10, 64)
		require.NoError(l.t, err)
		c := &l.counted[i]
		assert.GreaterOrEqual(l.t, n, c.acknowledged.Load(), "counter %d lost increments", i)
		assert.LessOrEqual(l.t, n, c.acknowledged.Load()+c.unknown.Load(), "counter %d was incremented twice for one call", i)
	}
	l.checkRegisters(ctx, db, registers)
	l.save(logs)
	return history.Check(sharedKeys+int(l.marks.Load())+1, logs...)
}

// historyFile has what all users of a run did. KVD_HISTORY judges such a file again.
const historyFile = "history.json"

// save writes what the users saw to the directory of the test's artifacts.
func (l *load) save(logs []*history.Log) {
	file, err := os.Create(filepath.Join(l.t.ArtifactDir(), historyFile))
	require.NoError(l.t, err)
	to := bufio.NewWriter(file)
	require.NoError(l.t, history.Save(to, logs...))
	require.NoError(l.t, to.Flush())
	require.NoError(l.t, file.Close())
}

// A history that a run has left is judged again, by a checker that may be newer.
func TestASavedHistory(t *testing.T) {
	name := os.Getenv("KVD_HISTORY")
	if name == "" {
		t.Skip("KVD_HISTORY names no file of a run")
	}
	file, err := os.Open(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	log, err := history.Load(bufio.NewReader(file))
	require.NoError(t, err)
	report := history.Check(log.Keys(), log)
	t.Log(report)
	require.Zero(t, report.Count)
}

// final reads everything once more: every write that was acknowledged is there. The marks tell
// what became of writes without an answer.
func (l *load) final(ctx context.Context, db *kvd.Client) *history.Log {
	var log history.Log
	u := l.users[0]
	for _, user := range l.users {
		for _, k := range user.lost {
			o := history.Op{Kind: history.Snapshot, Outcome: history.Done, Call: l.now()}
			require.NoError(l.t, db.View(ctx, func(s *kvd.Snapshot) error {
				item, err := s.GetItem(ctx, k.Bytes())
				if err != nil && !errors.Is(err, kvd.ErrNotFound) {
					return err
				}
				o.Reads, o.ReadVersion = []history.Read{u.read(k, item, err == nil)}, kv.SeqNum(s.Version())
				return nil
			}))
			o.Return = l.now()
			log.Add(o)
		}
	}
	o := history.Op{Kind: history.Snapshot, Outcome: history.Done, Call: l.now()}
	all := history.Scan{To: sharedKeys}
	require.NoError(l.t, db.View(ctx, func(s *kvd.Snapshot) error {
		all.Seen, o.ReadVersion = nil, kv.SeqNum(s.Version())
		for item, err := range s.Scan(ctx, kvd.Between(all.From.Bytes(), all.To.Bytes())) {
			if err != nil {
				return err
			}
			k, err := history.ParseKey(item.Key)
			if err != nil {
				return err
			}
			all.Seen = append(all.Seen, u.read(k, item, true))
		}
		return nil
	}))
	o.Return, o.Scans = l.now(), []history.Scan{all}
	log.Add(o)
	return &log
}
