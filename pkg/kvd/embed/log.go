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
		Damaged: func(d event.Damage) {
			log.Error("kvd: stored data is damaged, and reads of it fail; close the store and run kvd check on its directory, which lists all damage",
				"file", d.File, "kind", d.Kind, "offset", d.Offset, "reason", d.Reason)
		},
		BackgroundError: func(err error) {
			log.Error("kvd: background work failed and is tried again; if this line repeats, remove the cause that the error names", "error", err)
		},
		Failed: func(err error) {
			log.Error("kvd: the store stopped for good, and every call fails; remove the cause that the error names, close the store and open it again", "error", err)
		},
		TailDropped: func(e event.TailDrop) {
			log.Warn("kvd: the log ended in an incomplete write, which was dropped; it was never acknowledged as synced, and nothing needs to be done",
				"file", e.File, "offset", e.Off, "bytes", e.Bytes)
		},
		Stall: func(e event.Stall) {
			if e.Begin {
				log.Warn("kvd: writes are slowed until flushes and compactions have caught up, which they do by themselves; if this happens often, give the store more memory or a faster disk",
					"reason", e.Reason, "bytes_per_second", e.Rate)
				return
			}
			log.Info("kvd: writes are no longer slowed")
		},
		ReadOnly: func(e event.ReadOnly) { logReadOnly(log, e) },
		FileSetAside: func(e event.SetAside) {
			log.Warn("kvd: the directory of the store held a file that the store does not know; it was moved to lost+found and is not read: delete it if you do not need it", "from", e.From, "to", e.To)
		},
		Recovered: func(e event.Recovered) {
			log.Info("kvd: the store is open", "partitions", e.Partitions, "log_segments", e.Segments,
				"records_replayed", e.Records, "last_version", uint64(e.LastSeq), "took", e.Took)
		},
		Panicked: func(cause any, stack []byte) {
			log.Error("kvd: the engine panicked, which is a bug: the process ends at once; please report this line",
				"panic", fmt.Sprint(cause), "stack", string(stack))
			end(fmt.Sprintf("kvd: the engine panicked, which is a bug: %v\n\n%s", cause, stack))
		},
	}
}

// logReadOnly logs that the store stops taking puts, and that it takes them again.
func logReadOnly(log *slog.Logger, e event.ReadOnly) {
	if !e.Begin {
		log.Info("kvd: the store takes writes again", "free_bytes", e.Free, "took", e.Took)
		return
	}
	attrs := []any{"reason", e.Reason}
	if e.Cause != nil {
		attrs = append(attrs, "error", e.Cause)
	}
	if e.Resume == 0 { // free space does not help
		log.Warn("kvd: the store is read-only: puts and deletes are refused, and reads continue", attrs...)
		return
	}
	attrs = append(attrs, "free_bytes", e.Free, "resume_at_bytes", e.Resume)
	log.Warn("kvd: the store is read-only: puts are refused, reads and deletes continue; free space on the disk, or delete keys, and puts resume by themselves", attrs...)
}

// end ends the process by a panic that no caller of the store can recover: the goroutine
// that panicked may hold locks, and what they guard may be half changed.
func end(message string) {
	go panic(message)
	select {}
}
