package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// LinesPerSecond bounds the rate of lines, and how many may come at once: of
	// administrative calls, and of all others together. Guessed: more than operators read,
	// and 2 GB a day of each at most.
	LinesPerSecond = 100
	// DefaultMaxBytes is when a file is full by default.
	DefaultMaxBytes = 64 << 20
	// queueLines is how many lines may wait for the file. Guessed.
	queueLines = 1024
	// reservedLines is how many of those only administrative calls may take.
	reservedLines = queueLines / 4
)

// Event is a line of the log.
type Event struct {
	Time     time.Time `json:"time"`
	Kind     string    `json:"event"`
	Identity string    `json:"identity,omitempty"`
	Peer     string    `json:"peer,omitempty"`
	Method   string    `json:"method,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Dropped  uint64    `json:"dropped,omitempty"`
}

// The kinds of events.
const (
	SignIn       = "sign_in"
	SignInFailed = "sign_in_failed"
	Refused      = "refused"
	Admin        = "admin"
	dropped      = "dropped"
)

// Log writes events to a file. Safe for concurrent use.
type Log struct {
	fs       vfs.FS
	name     string
	maxBytes int64
	report   func(error)

	lines chan Event
	ended chan struct{}

	mu struct {
		sync.Mutex
		closed  bool
		dropped uint64 // since the last line
		total   uint64 // dropped since the start
		// admin and others are rates of their own: every client can make lines of the other
		// kinds, and must not keep an administrative call out of the log by that.
		admin, others rate
	}

	// Used by the goroutine that writes.
	file   vfs.File
	size   int64
	failed bool // the last write, which was reported
}

// Open appends to a file, which it makes if need be. report is told of an error of the file,
// once until a line is written again.
func Open(fsys vfs.FS, name string, maxBytes int64, report func(error)) (*Log, error) {
	l := &Log{fs: fsys, name: name, maxBytes: maxBytes, report: report, lines: make(chan Event, queueLines), ended: make(chan struct{})}
	l.mu.admin.lines, l.mu.others.lines = LinesPerSecond, LinesPerSecond
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	go l.run()
	return l, nil
}

func (l *Log) open() (err error) {
	l.file, err = l.fs.OpenReadWrite(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		l.file, err = l.fs.Create(l.name)
	}
	if err != nil {
		return err
	}
	if l.size, err = l.file.Size(); err != nil {
		return errors.Join(err, l.file.Close())
	}
	return nil
}

// Add writes an event, or counts it as dropped. It does not wait.
func (l *Log) Add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return
	}
	e.Time = time.Now().UTC()
	of, room := &l.mu.others, cap(l.lines)-reservedLines
	if e.Kind == Admin {
		of, room = &l.mu.admin, cap(l.lines)
	}
	if len(l.lines)+1 >= room || !of.take(e.Time) {
		l.mu.dropped++
		l.mu.total++
		return
	}
	l.sayDroppedLocked(e.Time)
	l.lines <- e
}

// rate bounds lines of some kinds.
type rate struct {
	lines float64 // that may be written now
	at    time.Time
}

// take reports whether a line may be written now.
func (r *rate) take(now time.Time) bool {
	r.lines = min(LinesPerSecond, r.lines+now.Sub(r.at).Seconds()*LinesPerSecond)
	r.at = now
	if r.lines < 1 {
		return false
	}
	r.lines--
	return true
}

// sayDroppedLocked adds a line with the count of what was dropped; there is room for it.
func (l *Log) sayDroppedLocked(now time.Time) {
	if l.mu.dropped > 0 {
		l.lines <- Event{Time: now, Kind: dropped, Dropped: l.mu.dropped}
		l.mu.dropped = 0
	}
}

// Dropped returns how many events were dropped, for lack of room or because the file failed.
func (l *Log) Dropped() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.total
}

// Close writes what is waiting. It is idempotent.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.mu.closed {
		l.mu.closed = true
		if len(l.lines) < cap(l.lines) {
			l.sayDroppedLocked(time.Now().UTC())
		}
		close(l.lines)
	}
	l.mu.Unlock()
	<-l.ended
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

func (l *Log) run() {
	defer close(l.ended)
	for e := range l.lines {
		err := l.write(e)
		if err != nil {
			l.mu.Lock()
			l.mu.total++
			l.mu.dropped++
			l.mu.Unlock()
			if !l.failed {
				l.report(fmt.Errorf("audit log %s: %w", l.name, err))
			}
		}
		l.failed = err != nil
	}
}

func (l *Log) write(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if l.file != nil && l.size > 0 && l.size+int64(len(line)) > l.maxBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			l.file = nil
			return err
		}
	}
	if _, err := l.file.WriteAt(line, l.size); err != nil {
		return err // the next line is written over what there is of this one
	}
	l.size += int64(len(line))
	return nil
}

// rotate renames the file. A new one is opened by the next write.
func (l *Log) rotate() error {
	err := l.file.Close()
	l.file = nil
	if err != nil {
		return err
	}
	return vfs.Rotate(l.fs, l.name, l.name+".1")
}
