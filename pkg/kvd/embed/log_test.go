package embed

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
)

// A line says what happened, what that means for calls, and what to do about it.
func TestLinesSayWhatToDo(t *testing.T) {
	cause := errors.New("no space left on device")
	for name, c := range map[string]struct {
		tell func(*event.Listener)
		says []string
	}{
		"damage": {func(l *event.Listener) {
			l.Damaged(event.Damage{File: "p-0000/000001.sst", Offset: 7, Reason: "checksum"})
		}, []string{"ERROR", "reads of it fail", "kvd check", "000001.sst", "offset=7"}},
		"background work":   {func(l *event.Listener) { l.BackgroundError(cause) }, []string{"ERROR", "tried again", "no space left"}},
		"failure":           {func(l *event.Listener) { l.Failed(cause) }, []string{"ERROR", "every call fails", "open it again", "no space left"}},
		"a torn tail":       {func(l *event.Listener) { l.TailDropped(event.TailDrop{File: "000001.wal", Bytes: 7}) }, []string{"WARN", "never acknowledged as synced", "000001.wal"}},
		"slow":              {func(l *event.Listener) { l.Stall(event.Stall{Begin: true, Reason: "deltas"}) }, []string{"WARN", "by themselves", "reason=deltas"}},
		"no longer slow":    {func(l *event.Listener) { l.Stall(event.Stall{}) }, []string{"INFO", "no longer slowed"}},
		"full":              {func(l *event.Listener) { l.ReadOnly(event.ReadOnly{Begin: true, Resume: 5}) }, []string{"WARN", "reads and deletes continue", "resume_at_bytes=5"}},
		"full, with cause":  {func(l *event.Listener) { l.ReadOnly(event.ReadOnly{Begin: true, Resume: 5, Cause: cause}) }, []string{"WARN", "no space left"}},
		"cannot be written": {func(l *event.Listener) { l.ReadOnly(event.ReadOnly{Begin: true, Reason: "mounted read-only"}) }, []string{"WARN", "puts and deletes are refused", "mounted read-only"}},
		"writable again":    {func(l *event.Listener) { l.ReadOnly(event.ReadOnly{}) }, []string{"INFO", "takes writes again"}},
		"an unknown file":   {func(l *event.Listener) { l.FileSetAside(event.SetAside{From: "a", To: "b"}) }, []string{"WARN", "lost+found", "from=a", "to=b"}},
		"open":              {func(l *event.Listener) { l.Recovered(event.Recovered{Partitions: 4}) }, []string{"INFO", "the store is open", "partitions=4"}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			c.tell(listener(slog.New(slog.NewTextHandler(&log, nil))))
			require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")))
			for _, says := range append(c.says, "kvd: ") {
				assert.Contains(t, log.String(), says)
			}
			assert.NotContains(t, log.String(), "nil")
		})
	}
}
