package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestOnlyLoopbackUnlessAskedFor(t *testing.T) {
	for address, allowed := range map[string]bool{
		"127.0.0.1:7070": true, "127.9.9.9:0": true, "[::1]:7070": true, "localhost:7070": true,
		"0.0.0.0:7070": false, ":7070": false, "[::]:7070": false, "10.0.0.1:7070": false, "example.com:7070": false,
	} {
		c := DefaultConfig()
		c.Listen = address
		err := c.normalize()
		assert.Equal(t, allowed, err == nil, address)
		if !allowed {
			require.ErrorIs(t, err, ErrUsage)
			require.ErrorContains(t, err, "pass --tls-cert, --tls-key, and --client-ca or --tokens")
		}
		c = DefaultConfig()
		c.Listen, c.TLSCert, c.TLSKey = address, "cert", "key"
		assert.Equal(t, allowed, c.normalize() == nil, "%s: encrypted, but not authenticated", address)
		c.ClientCA = "ca"
		require.NoError(t, c.normalize(), address)
		c.ClientCA, c.Tokens = "", "tokens"
		require.NoError(t, c.normalize(), address)
		c.TLSCert, c.TLSKey = "", ""
		assert.Equal(t, allowed, c.normalize() == nil, "%s: tokens in plain text", address)
		c.Listen, c.Admin = "127.0.0.1:0", address
		assert.Equal(t, allowed, c.normalize() == nil, "%s: the admin pages in plain text", address)
		c.TLSCert, c.TLSKey = "cert", "key"
		require.NoError(t, c.normalize(), address)
		c.Tokens = ""
		assert.Equal(t, allowed, c.normalize() == nil, "%s: the admin pages without authentication", address)
		c = DefaultConfig()
		c.Admin, c.Remote = address, true
		require.NoError(t, c.normalize(), address)
	}
}

func TestDevIsBufferedUnlessChosen(t *testing.T) {
	c := DefaultConfig()
	require.NoError(t, c.normalize())
	assert.Equal(t, kv.DurabilitySync, c.Durability)
	assert.Equal(t, vfs.OS, c.FS)
	c = DefaultConfig()
	c.Dev = true
	require.NoError(t, c.normalize())
	assert.Equal(t, kv.DurabilityBuffered, c.Durability)
	assert.IsType(t, &vfs.Mem{}, c.FS)
	c = DefaultConfig()
	c.Dev, c.Durability = true, kv.DurabilitySync
	require.NoError(t, c.normalize())
	assert.Equal(t, kv.DurabilitySync, c.Durability)
}

func TestMemoryIsAQuarterOfWhatThereIs(t *testing.T) {
	c := DefaultConfig()
	require.NoError(t, c.normalize())
	assert.GreaterOrEqual(t, c.Memory, int64(leastAutoMemory))
	assert.LessOrEqual(t, c.Memory, max(machineMemory()/4, leastAutoMemory))

	fsys := vfs.NewMem()
	assert.Zero(t, cgroupMemory(fsys), "no control group")
	write := func(name, text string) {
		require.NoError(t, fsys.MkdirAll(path.Dir(name)))
		require.NoError(t, vfs.WriteAtomic(fsys, name, []byte(text)))
	}
	write("/proc/self/cgroup", "1:name=systemd:/x\n0::/user/kvd\n")
	write("/sys/fs/cgroup/user/kvd/memory.max", "max\n")
	assert.Zero(t, cgroupMemory(fsys), "no limit")
	write("/sys/fs/cgroup/user/memory.max", "4294967296\n")
	assert.EqualValues(t, 4<<30, cgroupMemory(fsys), "the limit of the group above counts")
	write("/sys/fs/cgroup/user/kvd/memory.max", "2147483648\n")
	assert.EqualValues(t, 2<<30, cgroupMemory(fsys), "the lowest counts")
	assert.LessOrEqual(t, defaultMemory(fsys), int64(512<<20))
	write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")
	assert.EqualValues(t, 1<<30, cgroupMemory(fsys), "version 1, as in a container")
	write("/proc/self/cgroup", "4:cpu,memory:/user/kvd\n1:name=systemd:/x\nnonsense\n")
	write("/sys/fs/cgroup/memory/user/kvd/memory.limit_in_bytes", "9223372036854771712\n")
	write("/sys/fs/cgroup/memory/user/memory.limit_in_bytes", "536870912\n")
	assert.EqualValues(t, 512<<20, cgroupMemory(fsys), "version 1, the group above")
	assert.EqualValues(t, 256<<20, defaultMemory(fsys))
}

// The process may exceed its budget by a quarter, and must not be killed for it.
func TestTheBudgetFitsIntoASmallControlGroup(t *testing.T) {
	for limit, want := range map[int64]int64{
		8 << 30: 2 << 30, 1 << 30: 256 << 20, 512 << 20: 256 << 20, 256 << 20: 128 << 20, 200<<20 + 1: 100 << 20,
		100 << 20: minMemory, 0: minMemory,
	} {
		assert.Equal(t, want, autoMemory(limit), "%d", limit)
	}
}

func TestExitCodesTellWhatHappened(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("open store: %w", errors.Join(err, errors.New("and more"))) }
	for want, errs := range map[int][]error{
		ExitOK:      {nil},
		ExitUsage:   {wrap(ErrUsage), wrap(kv.ErrInvalidArgument)},
		ExitDamaged: {wrap(kv.Corruptf("f", 0, "x")), wrap(kv.ErrUnsupportedVersion), wrap(fmt.Errorf("%w: %w", kv.ErrFailed, engine.ErrDiffers))},
		ExitBind:    {wrap(fmt.Errorf("%w: %w", ErrListen, syscall.EADDRINUSE))},
		ExitIO: {
			wrap(fmt.Errorf("%w: %w", kv.ErrFailed, kv.Corruptf("f", 0, "x"))), wrap(ErrDiskStuck), wrap(ErrGraceEnded),
			wrap(&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}), wrap(syscall.ENOSPC),
		},
		ExitLocked: {wrap(vfs.ErrLocked)},
		ExitError:  {errors.New("a bug")},
	} {
		for _, err := range errs {
			if err == nil || want == ExitOK {
				assert.Equal(t, want, ExitCode(nil))
				continue
			}
			assert.Equal(t, want, ExitCode(err), err)
		}
	}
}

// A store in memory is a disk of its own, often smaller than the mark below which
// a store on a disk takes no writes: it must not be full from the start.
func TestTheSmallestStoreInMemoryHasRoom(t *testing.T) {
	c := DefaultConfig()
	c.Dev, c.Memory = true, minMemory
	require.NoError(t, c.normalize())
	usage, err := c.FS.Usage(".")
	require.NoError(t, err)
	assert.Less(t, uint64(c.LowDisk), usage.Free/4)
	assert.Less(t, uint64(c.segmentBytes), usage.Free/8, "several log segments fit")
}

func TestReflectionIsOnForLoopbackAddressesUnlessChosen(t *testing.T) {
	for address, loopback := range map[string]bool{
		"127.0.0.1:7070": true, "[::1]:7070": true, "localhost:7070": true, "0.0.0.0:7070": false, ":7070": false, "10.0.0.1:7070": false,
	} {
		for choice, want := range map[string]bool{"auto": loopback, "on": true, "off": false} {
			c := DefaultConfig()
			assert.Equal(t, "auto", c.Reflection)
			c.Listen, c.Remote, c.Reflection = address, true, choice
			require.NoError(t, c.normalize())
			assert.Equal(t, want, c.reflects(), "%s %s", address, choice)
		}
	}
}

func TestTheLongestDeadlineIsBounded(t *testing.T) {
	for text, valid := range map[string]bool{"1s": true, "24h0m0s": true, "999ms": false, "24h0m1s": false} {
		c := DefaultConfig()
		require.NoError(t, SetFromEnv(c.Settings(), []string{"KVD_MAX_DEADLINE=" + text}))
		err := c.normalize()
		assert.Equal(t, valid, err == nil, text)
		if !valid {
			require.ErrorIs(t, err, ErrUsage)
			require.ErrorContains(t, err, "--max-deadline "+text)
		}
	}
}
