package loadgen

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEnvironmentOfThisMachine(t *testing.T) {
	e := ReadEnvironment(t.TempDir())
	assert.Equal(t, runtime.Version(), e.Go)
	assert.Positive(t, e.GOMAXPROCS)
	if runtime.GOOS == "linux" {
		assert.NotEmpty(t, e.Kernel)
		assert.NotEmpty(t, e.FileSystem)
		assert.Positive(t, e.MemoryBytes)
	}
	assert.Empty(t, ReadEnvironment("").FileSystem)
}

func TestFileSystemIsThatOfTheInnermostMount(t *testing.T) {
	const mounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /data rw - xfs /dev/sdb1 rw
24 22 0:6 / /data/in\040memory rw - tmpfs tmpfs rw
25 22 0:7 / /data rw - btrfs /dev/sdc1 rw
broken line
`
	for dir, want := range map[string]string{
		"/":                     "ext4",
		"/database":             "ext4",
		"/data":                 "btrfs", // the later of two mounts hides the earlier
		"/data/x":               "btrfs",
		"/data/in memory/store": "tmpfs",
	} {
		assert.Equal(t, want, fileSystem(mounts, dir), dir)
	}
	assert.Empty(t, fileSystem("", "/"))
}

func TestFieldsOfTheKernelsFiles(t *testing.T) {
	const status = "Name:\tkvbench\nVmHWM:\t  1234 kB\nmodel name\t: Xeon: the first\n"
	assert.EqualValues(t, 1234<<10, kibibytes(field(status, "VmHWM")))
	assert.Equal(t, "Xeon: the first", field(status, "model name"))
	assert.Zero(t, kibibytes(field(status, "VmSwap")))
}
