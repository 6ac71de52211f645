package daemon

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/kvd-db/kvd/internal/admin"
)

var started = time.Now()

// Build returns what this binary was built from, as far as the toolchain recorded it.
func Build() admin.Build {
	b := admin.Build{Version: "devel", Commit: "unknown", Go: runtime.Version(), Started: started}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty {
		b.Commit += "+changes"
	}
	return b
}
