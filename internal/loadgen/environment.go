package loadgen

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Environment describes the machine of a run. Unknown fields are empty.
type Environment struct {
	Commit string `json:"commit"` // "+dirty" if the tree had changes
	// ProgramSum is a checksum of the program, if no commit says what it is; the caller computes
	// it.
	ProgramSum  string `json:"programSum,omitempty"`
	Go          string `json:"go"`
	OS          string `json:"os"`
	Kernel      string `json:"kernel"`
	CPU         string `json:"cpu"`
	GOMAXPROCS  int    `json:"gomaxprocs"`
	MemoryBytes int64  `json:"memoryBytes"`
	FileSystem  string `json:"fileSystem"`         // of the data directory
	Time        string `json:"time"`               // RFC 3339, UTC
	Governor    string `json:"governor,omitempty"` // of the processors' frequency
	// SyncNanos is how long the disk of the data took to sync a page, the median of a few;
	// the caller measures it.
	SyncNanos int64 `json:"syncNanos,omitempty"`
}

// ReadEnvironment determines the Environment. dataDir names the file system to record;
// it is empty if the data are elsewhere.
func ReadEnvironment(dataDir string) Environment {
	e := Environment{
		Commit:      commit(),
		Go:          runtime.Version(),
		OS:          runtime.GOOS + "/" + runtime.GOARCH,
		Kernel:      strings.TrimSpace(readProc("/proc/sys/kernel/osrelease")),
		CPU:         field(readProc("/proc/cpuinfo"), "model name"),
		GOMAXPROCS:  runtime.GOMAXPROCS(0),
		MemoryBytes: kibibytes(field(readProc("/proc/meminfo"), "MemTotal")),
		Governor:    strings.TrimSpace(readProc("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
		Time:        time.Now().UTC().Format(time.RFC3339),
	}
	if dataDir != "" {
		e.FileSystem = fileSystem(readProc("/proc/self/mountinfo"), dataDir)
	}
	return e
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return revision + dirty
}

// usage is what the process has used since it started.
type usage struct {
	processors
	peakRSS int64 // bytes
}

func readUsage() usage {
	return usage{readProcessors(), kibibytes(field(readProc("/proc/self/status"), "VmHWM"))}
}

// processors is the processor time that was used: by this process since it started, and by all
// of the machine.
type processors struct {
	cpu     time.Duration // user and system, all threads
	machine processorTime
}

func readProcessors() processors {
	var r syscall.Rusage
	p := processors{machine: parseProcessorTime(readProc("/proc/stat"))}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err == nil {
		p.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return p
}

// since returns the shares that this process and all others had since earlier; nil if they are
// not known.
func (p *processors) since(earlier *processors) (mine, others *float64) {
	return p.machine.since(&earlier.machine, p.cpu-earlier.cpu)
}

// DiskTraffic returns how many bytes this process has read from disks, and how many it has
// made the kernel write to disks; 0 if unknown.
func DiskTraffic() (read, written uint64) {
	io := readProc("/proc/self/io")
	number := func(name string) uint64 {
		n, err := strconv.ParseUint(field(io, name), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return number("read_bytes"), number("write_bytes")
}

// processorTime is what the kernel counts for all processors together, in its ticks of 10
// ms. All is 0 if it is unknown.
type processorTime struct{ all, idle uint64 }

// parseProcessorTime reads the first line of /proc/stat: see proc_stat(5). Time that the
// hypervisor gave to other machines is not idle.
func parseProcessorTime(stat string) (t processorTime) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return processorTime{}
	}
	for i, f := range fields[1:9] { // the rest is contained in user and nice
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return processorTime{}
		}
		t.all += n
		if i == 3 || i == 4 { // idle, iowait
			t.idle += n
		}
	}
	return t
}

// since returns the shares of the processor time since earlier that this process, which
// used own, and all others had; nil if they are not known.
func (t *processorTime) since(earlier *processorTime, own time.Duration) (mine, others *float64) {
	const tick = 10 * time.Millisecond
	all, idle := float64(t.all)-float64(earlier.all), float64(t.idle)-float64(earlier.idle)
	if t.all == 0 || earlier.all == 0 || all <= 0 {
		return nil, nil
	}
	share := min(float64(own)/(all*float64(tick)), 1)
	rest := min(max((all-idle)/all-share, 0), 1)
	return &share, &rest
}

// Warnings says in whole sentences why figures for this many bytes of data, if known,
// may mislead on this machine.
func (e *Environment) Warnings(dataBytes *int64) []string {
	var warnings []string
	if dataBytes != nil && e.MemoryBytes > 0 && *dataBytes < e.MemoryBytes/2 {
		warnings = append(warnings, "The data fit into memory, so reads were served by caches more than by the disk.")
	}
	if e.FileSystem == "tmpfs" {
		warnings = append(warnings, "The data lay on tmpfs: no write ever reached a disk.")
	}
	return warnings
}

// readProc returns the content of a file of the kernel, or nothing: the report is
// useful without it.
func readProc(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(bytes.ToValidUTF8(data, []byte("?")))
}

// field returns the value of the first line "name : value" in text.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kibibytes converts "123 kB", as the kernel writes it, to bytes.
func kibibytes(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(s, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// fileSystem returns the type of the file system that contains dir: that of the longest
// mount point that is a prefix of dir. For mountinfo see proc_pid_mountinfo(5): the
// fifth field of a line is the mount point, the first one after the separator is the
// type.
func fileSystem(mountinfo, dir string) string {
	path, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	var best, kind string
	for line := range strings.Lines(mountinfo) {
		mount, source, ok := strings.Cut(line, " - ")
		fields, sourceFields := strings.Fields(mount), strings.Fields(source)
		if !ok || len(fields) < 5 || len(sourceFields) == 0 {
			continue
		}
		point := unescapeMount(fields[4])
		inside := point == "/" || path == point || strings.HasPrefix(path, point+"/")
		if inside && len(point) >= len(best) { // a later mount hides an earlier one
			best, kind = point, sourceFields[0]
		}
	}
	return kind
}

// unescapeMount decodes the octal escapes of a mount point.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
