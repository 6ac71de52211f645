package daemon

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/event"
)

func TestReadinessTellsHowFarTheArchiveIs(t *testing.T) {
	assert.Equal(t, "up to version 7", archiveNote(&backup.ArchiveStatus{Version: 7}))
	assert.Equal(t, "behind since 2026-11-23T12:00:00Z at version 7: no space; 64MiB of the commit log wait; 2 gaps since the start, which no restore crosses: make a backup",
		archiveNote(&backup.ArchiveStatus{
			Version: 7, Err: errors.New("no space"), Since: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Backlog: 64 << 20, Gaps: 2,
		}))
}

// The log tells once that the archive fails, that a part will be missing, and that it is
// written again.
func TestTheLogTellsOfTheArchive(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	tell := newJournal(zap.New(core)).listener().Archive
	tell(event.Archive{Err: errors.New("no space")})
	tell(event.Archive{Err: errors.New("no space"), Gap: "given up"})
	tell(event.Archive{Recovered: true})
	all := lines.All()
	require.Len(t, all, 3)
	assert.Equal(t, zapcore.ErrorLevel, all[0].Level)
	assert.Contains(t, all[0].Message, "cannot be archived")
	assert.Equal(t, zapcore.ErrorLevel, all[1].Level)
	assert.Equal(t, "given up", all[1].ContextMap()["reason"])
	assert.Equal(t, zapcore.InfoLevel, all[2].Level)
}
