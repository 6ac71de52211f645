package admin

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/kvd-db/kvd/internal/engine"
)

func (s *Source) serveStatus(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK)
	s.WriteStatus(w)
}

// WriteStatus prints what the service is doing in a few lines for people.
func (s *Source) WriteStatus(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("kvd", "%s (%s, %s)", s.Build.Version, s.Build.Commit, s.Build.Go)
	line("up", "%v", time.Since(s.Build.Started).Round(time.Second))
	state := "READY"
	for _, c := range s.Checks() {
		if c.Err != nil {
			state = "NOT READY"
			line("problem", "%s: %v", c.Name, c.Err)
		} else if c.Note != "" {
			line("note", "%s: %s", c.Name, c.Note)
		}
	}
	line("state", "%s", state)
	for _, f := range s.Facts {
		if f.Value != "" {
			line(f.Name, "%s", f.Value)
		}
	}
	traffic := s.Traffic()
	line("connections", "%d open, %d calls in progress", traffic.Connections, traffic.Streams)
	for _, kind := range slices.Sorted(maps.Keys(traffic.Gates)) {
		if g := traffic.Gates[kind]; g.Waiting.Ops > 0 {
			line("overloaded", "%d %s wait for room in the store, which has %d", g.Waiting.Ops, kind, g.Inside.Ops)
		}
	}
	if stats, open := s.Store(); open {
		storeLines(line, &stats)
	}
	incidents := s.Incidents()
	line("incidents", "%d corruptions, %d background errors, disk slow %d times, %d files set aside, %d log bytes dropped at start",
		incidents.Corruptions, incidents.BackgroundErrors, incidents.SlowDisk, incidents.FilesSetAside, incidents.TailDropped)
	// The reader notices an error of its connection by itself.
	_ = t.Flush()
}

func storeLines(line func(name, format string, args ...any), st *engine.Stats) {
	var sum struct {
		batches, ops, reads, deltas, debt uint64
		tables                            int
	}
	for i := range st.Partitions {
		p := &st.Partitions[i]
		sum.batches += p.Writes.Count()
		sum.ops += p.Writes.Sum
		sum.reads += p.Reads.Sum
		sum.deltas += uint64(p.Deltas)
		sum.debt += p.Debt
		sum.tables += p.DeltaTables + p.BaseTables
	}
	line("writes", "%d in %d batches (%.1f each), %.1f for each sync", sum.ops, sum.batches,
		ratio(sum.ops, sum.batches), ratio(sum.ops, st.Log.Syncs))
	line("reads", "%d", sum.reads)
	line("syncs", "%d, %v on average, %v at most", st.Log.Syncs,
		(st.Log.SyncTime / time.Duration(max(st.Log.Syncs, 1))).Round(time.Microsecond), st.Log.SyncMax.Round(time.Microsecond))
	line("memtables", "%s of %s", mib(st.MemtableBytes), mib(st.MemtableLimit))
	line("disk", "%s in %d tables and %d log segments, %s free", mib(st.DiskBytes()), sum.tables, st.Log.Segments, mib(st.DiskFree))
	line("compaction", "%d deltas in %d partitions, %s to read", sum.deltas, len(st.Partitions), mib(sum.debt))
	if st.Pressure > 0 {
		line("slowed", "writes are slowed: pressure %.2f, they wait at 2", st.Pressure)
	}
}

func ratio(a, b uint64) float64 { return float64(a) / float64(max(b, 1)) }

func mib[T int64 | uint64](n T) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
