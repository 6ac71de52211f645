package embed

import (
	"fmt"
	"log/slog"

	"github.com/kvd-db/kvd/internal/event"
)

// listener writes what an engine tells to a log. Lines name files, numbers and causes,
// never keys or values.
func listener(log *slog.Logger) *event.Listener {
	return &event.Listener{
		Corruption: func(err error) {
			log.Error("kvd: stored data is damaged; run kvd check on the closed store", "error", err)
		},
		BackgroundError: func(err error) { log.Error("kvd: background work failed and is tried again", "error", err) },
		Failed:          func(err error) { log.Error("kvd: the store stopped for good", "error", err) },
		TailDropped: func(e event.TailDrop) {
			log.Warn("kvd: dropped a torn write at the end of the log; it was never acknowledged as synced",
				"file", e.File, "offset", e.Off, "bytes", e.Bytes)
		},
		Stall: func(e event.Stall) {
			if e.Begin {
				log.Warn("kvd: writes are slowed: background work is behind", "reason", e.Reason, "bytes_per_second", e.Rate)
				return
			}
			log.Info("kvd: writes are no longer slowed")
		},
		ReadOnly: func(e event.ReadOnly) {
			if e.Begin {
				log.Warn("kvd: the store is read-only", "reason", e.Reason, "free_bytes", e.Free, "resume_at_bytes", e.Resume, "error", e.Cause)
				return
			}
			log.Info("kvd: the store takes writes again", "free_bytes", e.Free, "took", e.Took)
		},
		FileSetAside: func(e event.SetAside) { log.Warn("kvd: an unknown file was moved", "from", e.From, "to", e.To) },
		Recovered: func(e event.Recovered) {
			log.Info("kvd: store is open", "partitions", e.Partitions, "log_segments", e.Segments,
				"records_replayed", e.Records, "last_version", uint64(e.LastSeq), "took", e.Took)
		},
		Panicked: func(cause any, stack []byte) {
			log.Error("kvd: the engine panicked, which is a bug: the process ends at once; please report this line",
				"panic", fmt.Sprint(cause), "stack", string(stack))
			end(fmt.Sprintf("kvd: the engine panicked, which is a bug: %v\n\n%s", cause, stack))
		},
	}
}

// end ends the process by a panic that no caller of the store can recover: the goroutine
// that panicked may hold locks, and what they guard may be half changed.
func end(message string) {
	go panic(message)
	select {}
}
