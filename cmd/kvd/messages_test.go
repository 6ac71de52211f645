package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
)

// A closed terminal, or a supervisor that asks for a reload, does not end the server.
func TestHangupIsLoggedAndIgnored(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	for range 2 {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	}
	testwait.Until(t, func() bool { return strings.Contains(p.log.String(), "SIGHUP is ignored") })
	p.must("put", "a", "1")
	assert.Zero(t, p.end(syscall.SIGTERM))
}

func TestMissingArgumentsAreNamedWithTheUsageLine(t *testing.T) {
	for _, c := range []struct {
		line, says, usage string
	}{
		{"get", "kvd get needs KEY", "kvd get KEY [flags]"},
		{"get a b", `kvd get takes one argument, KEY; "b" is one too many`, "kvd get KEY [flags]"},
		{"put", "kvd put needs KEY and VALUE", "kvd put KEY VALUE|- [flags]"},
		{"put a", "kvd put needs KEY and VALUE; VALUE is missing", "kvd put KEY VALUE|- [flags]"},
		{"put a b c", `kvd put takes two arguments, KEY and VALUE; "c" is one too many`, "kvd put KEY VALUE|- [flags]"},
		{"check", "kvd check needs DIR", "kvd check DIR [flags]"},
		{"dump", "kvd dump needs FILE", "kvd dump FILE [flags]"},
		{"export a b", `kvd export takes at most one argument, FILE; "b" is one too many`, "kvd export"},
		{"import a b", `kvd import takes at most one argument, FILE; "b" is one too many`, "kvd import"},
		{"txn a b", `kvd txn takes at most one argument, FILE; "b" is one too many`, "kvd txn"},
		{"digest a b", `kvd digest takes at most one argument, DIR or ADDR; "b" is one too many`, "kvd digest"},
		{"scan a", `kvd scan takes no arguments; "a" is one too many`, "kvd scan"},
		{"serve a", `kvd serve takes no arguments; "a" is one too many`, "kvd serve"},
	} {
		r := command(t, "", nil, strings.Fields(c.line)...)
		assert.Equal(t, 64, r.code, c.line)
		assert.Contains(t, r.err, c.says, c.line)
		assert.Contains(t, r.err, "\nusage: "+c.usage, c.line)
		assert.NotContains(t, r.err, "arg(s)")
	}
}

func TestAKeyThatIsNotThereIsNamed(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	r := p.kvd("get", "user/1")
	assert.Equal(t, result{code: exitNotFound, err: "kvd: get \"user/1\": key not found\n"}, r)
	r = p.kvd("get", "--hex", "00ff")
	assert.Equal(t, result{code: exitNotFound, err: "kvd: get \"00ff\": key not found\n"}, r, "as it was typed")
}

func TestWhatIsTooLargeIsSaidOnce(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	r := p.kvd("put", strings.Repeat("k", 5000), "v")
	assert.Equal(t, 64, r.code)
	assert.Equal(t, "kvd: put: too large: key has 5000 bytes, limit is 4096\n", r.err)
	for _, size := range []int{5 << 20, 9 << 20, 90 << 20} {
		r = p.kvdWith(strings.Repeat("v", size), "put", "k", "-")
		assert.Equal(t, 64, r.code, r.err)
		assert.Equal(t, 1, strings.Count(r.err, "too large"), r.err)
		assert.NotContains(t, r.err, "outcome unknown")
		assert.Regexp(t, `has [0-9]{7,8} bytes`, r.err)
	}
	assert.Equal(t, exitNotFound, p.kvd("get", "k").code)
}

func TestADeadlineIsSaidOnce(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	testwait.Until(t, func() bool { // the server goes on until one of its threads has taken the signal
		return p.kvd("get", "a", "--timeout", "300ms").code != exitNotFound
	})
	for _, args := range [][]string{{"get", "a"}, {"put", "a", "b"}, {"health"}, {"scan"}, {"digest"}} {
		r := p.kvd(append(args, "--timeout", "300ms")...)
		assert.NotZero(t, r.code)
		assert.LessOrEqual(t, strings.Count(r.err, "context"), 1, "%v: %s", args, r.err)
		assert.Contains(t, r.err, "longer --timeout", args)
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// A host alone means kvd's port. The test only looks at where the client dials.
func TestAHostAloneMeansThePortOfKvd(t *testing.T) {
	pid := os.Getpid() // another run of this test has another address
	host := fmt.Sprintf("127.%d.%d.%d", 1+pid>>14&0x7f, pid>>7&0x7f, 1+pid&0x7f)
	l, err := net.Listen("tcp", host+":7070")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	dialled := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case dialled <- c.LocalAddr().String():
			default: // the first one is enough
			}
			_ = c.Close() // the client is told nothing; it tries again
		}
	}()
	cmd := exec.Command(binary, "put", "--addr", host, "--timeout", testwait.Left().String(), "a", "b")
	cmd.Env = cleanEnv()
	require.NoError(t, cmd.Start())
	addr, _ := testwait.Receive(t, dialled, "a connection to port 7070")
	assert.Equal(t, host+":7070", addr)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}

func TestTheAdminAddressIsRecognised(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--dev")
	for _, args := range [][]string{{"get", "a"}, {"put", "a", "b"}, {"scan"}, {"health"}, {"txn", "/dev/stdin"}} {
		says := p.admin + " is the admin address of a kvd server, which serves health, metrics and profiles alone"
		r := saying(t, says, time.Second, func(timeout string) result {
			return command(t, "get a\n", nil, append(args, "--addr", p.admin, "--timeout", timeout)...)
		})
		assert.Equal(t, exitUnavailable, r.code, "%v: %s", args, r.err)
		assert.NotContains(t, r.err, "is the server running")
	}
}

func TestWhyAnAddressCannotBeListenedOn(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	r := command(t, "", nil, "serve", "--dev", "--listen", p.addr, "--admin", "127.0.0.1:0")
	assert.Equal(t, 69, r.code)
	assert.Contains(t, r.err, "another process listens there, perhaps another kvd; stop it, or choose a free address with --listen")
	r = command(t, "", nil, "serve", "--dev", "--listen", "127.0.0.1:0", "--admin", p.admin)
	assert.Equal(t, 69, r.code)
	assert.Contains(t, r.err, "choose a free address with --admin")
	// 192.0.2.1 is for documentation: no machine has it.
	r = command(t, "", nil, "serve", "--dev", "--listen", "192.0.2.1:7070", "--admin", "127.0.0.1:0", "--insecure-allow-remote")
	assert.Equal(t, 69, r.code)
	assert.Contains(t, r.err, "this machine does not have that address; choose one of its own with --listen")
	assert.NotContains(t, r.err, "another")
}

func TestAFileIsNoDataDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	for _, args := range [][]string{
		{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", file},
		{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", filepath.Join(file, "below")},
		{"check", file}, {"digest", file},
	} {
		r := command(t, "", nil, args...)
		assert.Equal(t, 64, r.code, "%v: %s", args, r.err)
		assert.Contains(t, r.err, file, args)
		assert.Contains(t, r.err, "is a file, not a directory", args)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))
}

func TestEveryKeyGoesOnlyAfterYesAndIsCounted(t *testing.T) {
	p := withKeys(t)
	before := p.keys()
	r := p.kvd("del", "--all")
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "kvd del --all would remove all 15 keys; add --yes to remove them")
	assert.Equal(t, before, p.keys())
	assert.Equal(t, "keys removed: 15\n", p.must("del", "--all", "--yes"))
	assert.Empty(t, p.keys())
	assert.Equal(t, "keys removed: 0\n", p.must("del", "--all", "--yes"))
	assert.Equal(t, "keys that would go: 0\n", p.must("del", "--all", "--dry-run"))
}
