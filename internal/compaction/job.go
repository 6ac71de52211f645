package compaction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/mergeiter"
	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// defaultTableBytes is where a table is cut. Guessed: a drain of 128 MiB can
	// then choose among four tables, and 10 GiB are 320 files.
	defaultTableBytes = 32 << 20
	// paceBytes is how much of the input is merged between two checks of the
	// context: a few milliseconds of work.
	paceBytes = 64 << 10

	// yieldEntries is how many entries are merged between two yields of the
	// processor, some 20 us of work. Inputs are mostly in memory, so without yields a
	// merge would run until the runtime preempts it after 10 ms, and requests would wait as
	// long.
	yieldEntries = 32
)

// Outputs creates and removes the files of new tables and value files.
type Outputs interface {
	// Create creates an empty file under a new number: a manifest.FileTable or FileValues.
	Create(manifest.FileKind) (vfs.File, kv.FileID, error)
	// Remove removes a file that Create created and that was closed.
	Remove(manifest.FileKind, kv.FileNum) error
}

// Job describes one merge.
type Job struct {
	Choice Choice
	Rule   Rule
	// Open returns an iterator over all entries of an input. Run closes it. One
	// table of each input run is open at a time.
	Open    func(*kv.TableMeta) (kv.Iterator, error)
	Outputs Outputs
	Values  ValueRule
	// TableBytes is where an output is cut, up to a block and the versions
	// of one key more. Default 32 MiB. Under a range tombstone, tables are cut at
	// 8 MiB if that is less.
	TableBytes int64
	Writer     sstable.WriterOptions
}

// Result describes a completed merge.
type Result struct {
	// Tables holds the outputs, complete and synced, a run for Choice.Edit. Their
	// names in the directory are not synced yet.
	Tables manifest.Run
	// Values holds the new value files, also complete and synced. Tables points to each value
	// in them.
	Values []kv.ValueFileMeta
	Moved  uint64 // bytes of values in them that were read from older ones
	// Read is the number of entries read; those that are not in Tables were dropped.
	Read       uint64
	Superseded uint64 // dropped: an older version or a range tombstone that no reader can see
	Tombstones uint64 // dropped: a tombstone or an expired entry that hides nothing
	// Pieces is the number of range tombstones that were made by cutting others
	// where a table was cut. They are not in Read.
	Pieces uint64
}

// Written returns the bytes of all new files.
func (r *Result) Written() uint64 {
	sum := r.Tables.Bytes()
	for i := range r.Values {
		sum += r.Values[i].Size
	}
	return sum
}

// Run executes the merge and returns its outputs. It changes no input and installs
// nothing.
//
// If it returns no error: the number of entries read is what the manifest says of the
// inputs; each entry, and each piece of a range tombstone, is in an output or was dropped
// by the rule; and every block of every output was read back from its file and verified
// (see "Reading back" in the package comment).
//
// Errors: those of the inputs, a *kv.CorruptionError among them, of the outputs,
// and that of ctx once it is done. After an error Run has removed all outputs; if it
// could not remove one, the error says so too. Run returns soon after ctx is done.
func Run(ctx context.Context, job Job) (Result, error) {
	if job.TableBytes <= 0 {
		job.TableBytes = defaultTableBytes
	}
	m := merge{
		job:    &job,
		judge:  judge{rule: job.Rule, olderRead: job.Choice.Kind == manifest.CompactBase},
		values: newSeparator(&job),
	}
	err := m.run(ctx)
	if err != nil {
		err = errors.Join(err, m.abort())
		return Result{}, fmt.Errorf("compact %s: %w", job.Choice.Kind, err)
	}
	return m.result, nil
}

// merge is the state of one Run.
type merge struct {
	job    *Job
	judge  judge
	values separator
	result Result

	out      *output      // nil between two tables
	agenda   agenda       // range tombstones that begin after the key where they were read
	created  []kv.FileNum // all outputs, for abort
	lastKey  []byte       // of the last entry, dropped or not
	lastSeq  kv.SeqNum
	lastKind kv.Kind
	unpaced  int // bytes merged since the last check of the context
}

func (m *merge) run(ctx context.Context) (err error) {
	var inputs []kv.Iterator
	for _, run := range m.job.Choice.Inputs() {
		inputs = append(inputs, run.NewIterator(func(table int) (kv.Iterator, error) { return m.job.Open(&run[table]) }))
	}
	it := mergeiter.New(inputs...)
	defer func() {
		if closeErr := it.Close(); err == nil {
			err = closeErr
		}
	}()

	if err := m.pace(ctx, 0); err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := m.add(ctx, it.Entry()); err != nil {
			return err
		}
	}
	// Until here the end of the inputs looks like a failure to read them.
	if err := it.Err(); err != nil {
		return err
	}
	if err := m.catchUp(ctx, nil); err != nil {
		return err
	}
	if err := m.finish(ctx); err != nil {
		return err
	}
	if err := m.values.finish(ctx); err != nil {
		return err
	}
	m.result.Values, m.result.Moved = m.values.result, m.values.moved
	return m.checkCounts()
}

func (m *merge) add(ctx context.Context, e *kv.Entry) error {
	if err := m.pace(ctx, e.Size()); err != nil {
		return err
	}
	sameKey, err := m.follows(e)
	if err != nil {
		return err
	}
	m.result.Read++
	m.lastKey = append(m.lastKey[:0], e.Key...)
	m.lastSeq, m.lastKind = e.Seq, e.Kind

	if err := m.catchUp(ctx, e); err != nil {
		return err
	}
	if !sameKey {
		m.judge.nextKey()
	}
	if e.Kind == kv.KindRangeDelete {
		t := kv.Entry{Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value), Seq: e.Seq, Kind: e.Kind}
		if err := m.addRange(t); err != nil {
			return err
		}
		m.advanced()
		return nil
	}
	if !m.count(m.judge.point(e)) {
		return nil
	}
	if err := m.create(); err != nil {
		return err
	}
	m.advanced()
	moved := m.values.moved
	if e, err = m.values.place(ctx, e); err != nil {
		return err
	}
	m.unpaced += int(m.values.moved - moved)
	return m.out.add(e)
}

// advanced records that the current output contains an entry of the inputs.
func (m *merge) advanced() {
	if m.out != nil {
		m.out.advanced = true
	}
}

// catchUp adds the range tombstones of the agenda that are due before e, which is nil
// at the end, and cuts the table when it is full.
func (m *merge) catchUp(ctx context.Context, e *kv.Entry) error {
	for {
		next := m.agenda.due(e)
		due := next != nil
		if !due {
			next = e
		}
		switch {
		case next == nil:
			return nil
		case m.out != nil && m.out.full(m.job.TableBytes, next.Key):
			if err := m.cut(ctx, next.Key); err != nil { // may add to the agenda
				return err
			}
		case !due:
			return nil
		default:
			if err := m.addRange(m.agenda.pop()); err != nil {
				return err
			}
		}
	}
}

// addRange adds a range tombstone, whose slices it keeps.
func (m *merge) addRange(t kv.Entry) error {
	v := m.judge.rangeDelete(&t)
	if v == postponed {
		m.agenda.add(t)
		return nil
	}
	if !m.count(v) {
		return nil
	}
	if err := m.create(); err != nil {
		return err
	}
	return m.out.addRange(&t)
}

// count counts a dropped entry and reports whether the entry stays.
func (m *merge) count(v verdict) bool {
	switch v {
	case superseded:
		m.result.Superseded++
	case tombstoneDead:
		m.result.Tombstones++
	}
	return v == stays
}

// pace yields the processor once every yieldEntries. Once every paceBytes it checks the context,
// and rests if that says so (pace.WithRests).
func (m *merge) pace(ctx context.Context, bytes int) error {
	if m.result.Read%yieldEntries == 0 {
		runtime.Gosched()
	}
	m.unpaced += bytes
	if m.result.Read > 0 && m.unpaced < paceBytes {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.unpaced = 0
	return pace.Rest(ctx)
}

// follows reports whether e has the key of the entry before it, and returns an error if
// e is out of order. Only a range tombstone may share key and number with another entry.
func (m *merge) follows(e *kv.Entry) (sameKey bool, err error) {
	if m.result.Read == 0 {
		return false, nil
	}
	c := bytes.Compare(m.lastKey, e.Key)
	if c < 0 {
		return false, nil
	}
	tied := m.lastSeq == e.Seq && (m.lastKind == kv.KindRangeDelete || e.Kind == kv.KindRangeDelete)
	if c > 0 || m.lastSeq <= e.Seq && !tied {
		return false, kv.Corruptf(manifest.TableName(m.job.Choice.Tables()[0]), -1,
			"among the inputs %v an entry of number %d follows one of number %d of the same or a larger key",
			m.job.Choice.Tables(), e.Seq, m.lastSeq)
	}
	return true, nil
}

// create begins an output if there is none.
func (m *merge) create() error {
	if m.out != nil {
		return nil
	}
	f, id, err := m.job.Outputs.Create(manifest.FileTable)
	if err != nil {
		return err
	}
	m.created = append(m.created, id.Num)
	m.out = newOutput(f, id, m.job.Writer)
	return nil
}

// cut completes the current output before the next key. The parts of its range
// tombstones from there on go to the next output.
func (m *merge) cut(ctx context.Context, next []byte) error {
	rest := m.out.cut(next)
	m.result.Pieces += uint64(len(rest))
	for _, t := range rest {
		m.agenda.add(t)
	}
	m.judge.cover.keep(m.judge.dead) // the others end here or are on the agenda
	return m.finish(ctx)
}

// finish completes the current output, if there is one.
func (m *merge) finish(ctx context.Context) error {
	if m.out == nil {
		return nil
	}
	out := m.out
	m.out = nil
	meta, err := out.finish(ctx)
	if err != nil {
		return err
	}
	m.result.Tables = append(m.result.Tables, meta)
	return nil
}

// checkCounts verifies that no entry was lost or added.
func (m *merge) checkCounts() error {
	r := &m.result
	if want := m.job.Choice.Entries(); r.Read != want {
		return kv.Corruptf(manifest.TableName(m.job.Choice.Tables()[0]), -1,
			"the inputs %v brought %d entries, the manifest says %d", m.job.Choice.Tables(), r.Read, want)
	}
	if kept := r.Tables.Entries(); kept+r.Superseded+r.Tombstones != r.Read+r.Pieces {
		return fmt.Errorf("%d entries read and %d pieces made, but %d written, %d superseded and %d tombstones dropped",
			r.Read, r.Pieces, kept, r.Superseded, r.Tombstones)
	}
	return nil
}

// abort removes all outputs.
func (m *merge) abort() (err error) {
	if m.out != nil {
		err = m.out.file.Close()
	}
	for _, num := range m.created {
		err = errors.Join(err, m.job.Outputs.Remove(manifest.FileTable, num))
	}
	return errors.Join(err, m.values.abort())
}
