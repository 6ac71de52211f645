package audit

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// DefaultMaxBytes is when a file is full by default.
	DefaultMaxBytes = 64 << 20
	// queueLines is how many lines may wait for a file. Guessed.
	queueLines = 1024
	// reservedLines is how many of those only administrative calls may take.
	reservedLines = queueLines / 4
	// refusedSuffix is of the file with what was refused.
	refusedSuffix = ".refused"
	// lockSuffix is of the file that a process holds while it writes the others.
	lockSuffix = ".lock"
)

// Event is a line of the log.
type Event struct {
	Time     time.Time `json:"time"`
	Kind     string    `json:"event"`
	Of       string    `json:"of,omitempty"`
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

// Log writes events to files. Safe for concurrent use.
type Log struct {
	lock     io.Closer
	done     *file // sign-ins and administrative calls
	refusals *file

	mu struct {
		sync.Mutex
		closed  bool
		dropped uint64 // since the start
		limits  [classes]limit
	}
}

// Open appends to the files of a log, which it makes if need be, and which no other process
// writes until Close. report is told of an error of each file, once until a line is written
// again.
//
// Errors: vfs.ErrLocked.
func Open(fsys vfs.FS, name string, maxBytes int64, report func(error)) (*Log, error) {
	l := new(Log)
	for c := range classes {
		l.mu.limits[c] = newLimit()
	}
	var err error
	// Each process writes at the end that it knows: a second one would write over its lines.
	if l.lock, err = fsys.Lock(name + lockSuffix); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if l.done, err = openFile(fsys, name, maxBytes, report); err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	if l.refusals, err = openFile(fsys, name+refusedSuffix, maxBytes, report); err != nil {
		return nil, errors.Join(err, l.done.close(), l.lock.Close())
	}
	return l, nil
}

// fileOf returns the file of a class, and how many lines of it may wait.
func (l *Log) fileOf(c class) (f *file, room int) {
	switch c {
	case ofAdmin:
		return l.done, queueLines
	case ofSignIns:
		return l.done, queueLines - reservedLines
	}
	return l.refusals, queueLines
}

// Add writes an event, or counts it as dropped. It does not wait.
func (l *Log) Add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return
	}
	e.Time = time.Now().UTC()
	c := classOf(&e)
	limit := &l.mu.limits[c]
	address, peer := limit.peer(c, addressOf(e.Peer))
	f, room := l.fileOf(c)
	// Room for a line is also that for one which says what was dropped.
	if len(f.lines)+2 > room || limit.all.left(e.Time) < 1 || peer.left(e.Time) < 1 {
		peer.dropped++
		l.mu.dropped++
		return
	}
	limit.all.take(e.Time)
	peer.take(e.Time)
	switch lost := f.lost.Swap(0); {
	case lost > 0:
		f.lines <- Event{Time: e.Time, Kind: dropped, Dropped: lost}
	case peer.dropped > 0:
		f.lines <- saysDropped(e.Time, c, address, peer)
	}
	f.lines <- e
	limit.sweep(e.Time, func(address string, _ uint64) bool {
		if len(f.lines) >= room {
			return false
		}
		f.lines <- saysDropped(e.Time, c, address, limit.peers[address])
		return true
	})
}

// saysDropped returns a line with what was dropped of an address.
func saysDropped(now time.Time, c class, address string, p *peerLimit) Event {
	n := p.dropped
	p.dropped = 0
	return Event{Time: now, Kind: dropped, Of: classNames[c], Peer: address, Dropped: n}
}

// Dropped returns how many events were dropped, for lack of room or because a file failed.
func (l *Log) Dropped() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.dropped + l.done.total.Load() + l.refusals.total.Load()
}

// Close writes what is waiting. It is idempotent.
func (l *Log) Close() error {
	l.mu.Lock()
	closed := l.mu.closed
	l.mu.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	now := time.Now().UTC()
	for c := range classes { // no other goroutine uses the limits any more
		f, _ := l.fileOf(c)
		for address, p := range l.mu.limits[c].peers {
			if p.dropped > 0 {
				f.lines <- saysDropped(now, c, address, p)
			}
		}
	}
	return errors.Join(l.done.close(), l.refusals.close(), l.lock.Close())
}
