package formats

import (
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/wal"
)

// Kind is a kind of file, with the versions of its format.
type Kind struct {
	Name string
	// Oldest and Newest are the versions that this kvd reads, with those between them. It
	// writes those from Writes on; files of an older one are outdated.
	Oldest, Writes, Newest uint32

	// formatOf returns the version of a file of which bytes are given: from the beginning,
	// or from the end if fromEnd.
	formatOf func(name string, part []byte) (uint32, error)
	bytes    int64
	fromEnd  bool
}

// The kinds of files of a store.
var (
	Store = &Kind{
		Name: "STORE", Oldest: descriptor.OldestFormat, Writes: descriptor.NewestFormat, Newest: descriptor.NewestFormat,
		formatOf: descriptor.FormatOf, bytes: descriptor.HeadBytes,
	}
	Clock = &Kind{
		Name: "CLOCK", Oldest: descriptor.OldestClockFormat, Writes: descriptor.NewestClockFormat, Newest: descriptor.NewestClockFormat,
		formatOf: descriptor.ClockFormatOf, bytes: descriptor.HeadBytes,
	}
	Log = &Kind{
		Name: "log segment", Oldest: wal.OldestFormat, Writes: wal.NewestFormat, Newest: wal.NewestFormat,
		formatOf: wal.FormatOf, bytes: wal.HeadBytes,
	}
	// Node: of a cluster that was never recovered, NODE is of version 1.
	Node = &Kind{
		Name: "NODE", Oldest: descriptor.OldestNodeFormat, Writes: descriptor.OldestNodeFormat, Newest: descriptor.NewestNodeFormat,
		formatOf: descriptor.NodeFormatOf, bytes: descriptor.HeadBytes,
	}
	Replicated = &Kind{
		Name: "segment of a cluster", Oldest: logfile.OldestReplicatedFormat, Writes: logfile.NewestReplicatedFormat, Newest: logfile.NewestReplicatedFormat,
		formatOf: logfile.ReplicatedFormatOf, bytes: logfile.ReplicatedHeadBytes,
	}
	Current = &Kind{
		Name: "CURRENT", Oldest: manifest.OldestCurrentFormat, Writes: manifest.OldestCurrentFormat, Newest: manifest.NewestCurrentFormat,
		formatOf: manifest.CurrentFormatOf, bytes: manifest.CurrentBytes + 1,
	}
	// Manifest: without value files a manifest is of version 1.
	Manifest = &Kind{
		Name: "manifest", Oldest: manifest.OldestFormat, Writes: manifest.OldestFormat, Newest: manifest.NewestFormat,
		formatOf: manifest.FormatOf, bytes: manifest.HeadBytes,
	}
	// Table: without expiries, old versions of keys and padding a table is of version 3.
	Table = &Kind{
		Name: "table", Oldest: sstable.OldestFormat, Writes: sstable.OldestFormat, Newest: sstable.NewestFormat,
		formatOf: sstable.FormatOf, bytes: sstable.FooterBytes, fromEnd: true,
	}
	Values = &Kind{
		Name: "value file", Oldest: valuefile.OldestFormat, Writes: valuefile.OldestFormat, Newest: valuefile.NewestFormat,
		formatOf: valuefile.FormatOf, bytes: valuefile.FooterBytes, fromEnd: true,
	}
)

// Kinds lists all kinds.
var Kinds = []*Kind{Store, Clock, Node, Log, Replicated, Current, Manifest, Table, Values}
