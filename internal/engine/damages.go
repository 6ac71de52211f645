package engine

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

// maxDamages bounds the places that are remembered. Guessed: more than an operator reads.
const maxDamages = 1024

// damages are the places of files that were found damaged since the store was opened.
type damages struct {
	mu    sync.Mutex
	found map[damagedPlace]event.Damage
}

type damagedPlace struct {
	file   string
	offset int64
}

// add remembers a place, and reports whether it is new.
func (s *damages) add(d event.Damage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := damagedPlace{d.File, d.Offset}
	_, known := s.found[at]
	if !known && len(s.found) >= maxDamages {
		return false
	}
	if s.found == nil {
		s.found = make(map[damagedPlace]event.Damage)
	}
	s.found[at] = d
	return !known
}

// forget removes the places of a file, but for those that were found just now.
func (s *damages) forget(file string, now []event.Damage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.found {
		if at.file == file && !slices.ContainsFunc(now, func(d event.Damage) bool { return at == damagedPlace{d.File, d.Offset} }) {
			delete(s.found, at)
		}
	}
}

// forgetManifest removes the places of CURRENT and the manifests of a partition.
func (s *damages) forgetManifest(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, d := range s.found {
		if d.Kind == kindManifest && path.Dir(at.file) == dir {
			delete(s.found, at)
		}
	}
}

// all returns the places in the order of files and offsets.
func (s *damages) all() []event.Damage {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]event.Damage, 0, len(s.found))
	for _, d := range s.found {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b event.Damage) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

// Damages returns the places of files that were found damaged since the store was opened, by
// reads, merges, checkpoints and scrubs, at most 1,024. A file that was verified whole
// again, or that the store does not need any more, is not among them.
func (e *Engine) Damages() []event.Damage {
	defer e.events.Guard()
	all := e.damages.all()
	return slices.DeleteFunc(all, func(d event.Damage) bool {
		if e.needs(d) {
			return false
		}
		e.damages.forget(d.File, nil)
		return true
	})
}

// needs reports whether the store still needs a damaged file.
func (e *Engine) needs(d event.Damage) bool {
	dir, name := path.Split(d.File)
	switch d.Kind {
	case kindTable, kindValues:
		id, ok := descriptor.ParsePartition(path.Clean(dir))
		if !ok || id >= len(e.partitions) {
			return true
		}
		ref := e.partitions[id].AcquireFiles()
		defer ref.Release()
		_, num := manifest.ParseName(name)
		for _, used := range ref.Files() {
			if used == num {
				return true
			}
		}
		return false
	case kindLog:
		_, err := e.opts.FS.Stat(path.Join(e.dir, d.File))
		return err == nil
	}
	return true
}

// damaged notes the result of verifying a file, nil if it is whole, and returns the damage.
func (e *Engine) damaged(name string, err error) []event.Damage {
	var all []event.Damage
	defer func() { e.damages.forget(descriptor.Inside(e.dir, name), all) }()
	if err == nil {
		return nil
	}
	found := kv.Corruptions(err)
	if len(found) == 0 {
		// The disk cannot read it, or a newer kvd wrote it.
		found = append(found, &kv.CorruptionError{File: name, Offset: -1, Reason: err.Error()})
	}
	for _, c := range found {
		all = append(all, e.damageOf(c))
		e.corrupt(c)
	}
	return all
}

// The kinds of files in event.Damage.
const (
	kindTable    = "table"
	kindValues   = "values"
	kindLog      = "log"
	kindManifest = "manifest"
	kindStore    = "store"
	kindClock    = "clock"
)

// damageOf describes damage by the path inside the store's directory.
func (e *Engine) damageOf(c *kv.CorruptionError) event.Damage {
	d := event.Damage{File: descriptor.Inside(e.dir, c.File), Offset: c.Offset, Reason: c.Reason, First: c.First, Last: c.Last}
	switch kind, _ := manifest.ParseName(path.Base(d.File)); {
	case d.File == descriptor.Name:
		d.Kind = kindStore
	case d.File == descriptor.ClockName:
		d.Kind = kindClock
	case d.File == descriptor.LogName || strings.HasPrefix(d.File, descriptor.LogName+"/"):
		d.Kind = kindLog
	case kind == manifest.FileTable:
		d.Kind = kindTable
	case kind == manifest.FileValues:
		d.Kind = kindValues
	default:
		d.Kind = kindManifest
	}
	return d
}

// listen returns the listener of an engine: o, which learns of each damaged place once.
func (e *Engine) listen(o *event.Listener) *event.Listener {
	var l event.Listener
	if o != nil {
		l = *o
	}
	told := l.Corruption
	l.Corruption = func(err error) {
		if told != nil {
			told(err)
		}
		for _, c := range kv.Corruptions(err) {
			if d := e.damageOf(c); e.damages.add(d) && l.Damaged != nil {
				l.Damaged(d)
			}
		}
	}
	return &l
}
