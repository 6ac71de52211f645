package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
)

// A server is killed; from a backup and its archive, the store is restored to versions and
// times in the middle, and to the end.
func TestRestoreToAVersionAndToATime(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	data, archive, backups := filepath.Join(base, "data"), filepath.Join(base, "archive"), filepath.Join(base, "backups")
	require.NoError(t, os.Mkdir(data, 0o700))
	p := serve(t, data, "--archive", archive, "--archive-interval", "1s")
	p.must("put", "k", "before")
	backedUp := strings.Fields(p.must("get", "k", "--version"))[0]
	p.must("backup", backups)
	type point struct{ version, at, digest string }
	var points []point
	for i := range 2 {
		p.must("put", "k", fmt.Sprint("value ", i))
		p.must("put", fmt.Sprint("other ", i), "x")
		p.must("put", "last", fmt.Sprint(i))
		version := strings.Fields(p.must("get", "last", "--version"))[0]
		p.archives(version)
		points = append(points, point{version, moment(t), p.must("digest")})
	}
	require.Equal(t, -1, p.end(syscall.SIGKILL))
	restored := func(args ...string) string {
		dir := filepath.Join(t.TempDir(), "restored")
		out := requireOK(t, append([]string{"restore", backups, dir, "--archive", archive}, args...)...)
		require.Contains(t, out, "restored version ")
		return requireOK(t, "digest", dir)
	}
	for i, at := range points {
		assert.Equal(t, at.digest, restored("--to-version", at.version))
		if i < len(points)-1 {
			assert.Equal(t, at.digest, restored("--to-time", at.at))
		}
	}
	assert.Equal(t, points[1].digest, restored())

	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--archive", archive, "--to-version", "1" + points[1].version}, 64, "beyond the end of the archive " + archive + ", which is version " + points[1].version},
		{[]string{"--archive", archive, "--to-time", "2001-01-01T00:00:00Z"}, 64, "before the first time"},
		{[]string{"--archive", archive, "--to-time", "2101-01-01T00:00:00Z"}, 64, "beyond the end"},
		{[]string{"--archive", archive, "--to-time", "noon"}, 64, "is no time such as"},
		{[]string{"--archive", archive, "--to-version", "0"}, 64, "version 0 is older than the oldest backup"},
		{[]string{"--archive", archive, "--to-version", "1", "--to-time", "2101-01-01T00:00:00Z"}, 64, "not both"},
		{[]string{"--to-version", "5"}, 64, "need --archive"},
		{[]string{"--archive", backups}, 64, "not an archive"},
		{[]string{"--archive", filepath.Join(base, "absent")}, 64, "absent"},
	} {
		r := command(t, "", nil, append([]string{"restore", backups, filepath.Join(base, "x")}, c.args...)...)
		assert.Equal(t, c.code, r.code, "%v: %s", c.args, r.err)
		assert.Contains(t, r.err, c.want)
		assert.NoDirExists(t, filepath.Join(base, "x"), "%v", c.args)
	}

	require.Regexp(t, `(?s)TO VERSION.*\n0 +`+points[1].version+` .*pieces are whole\n$`, requireOK(t, "backup", "archive", archive, "--verify"))
	frames, err := filepath.Glob(filepath.Join(archive, "*.frames"))
	require.NoError(t, err)
	whole, err := os.ReadFile(frames[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(frames[0], append([]byte("x"), whole[1:]...), 0o600))
	for _, args := range [][]string{{"backup", "archive", archive, "--verify"}, {"restore", backups, filepath.Join(base, "damaged"), "--archive", archive}} {
		r := command(t, "", nil, args...)
		assert.Equal(t, 65, r.code, r.err)
		assert.Contains(t, r.err, filepath.Base(frames[0]))
	}
	require.NoError(t, os.WriteFile(frames[0], whole, 0o600))

	// The store goes on with its archive; older backups and what they need go.
	p = serve(t, data, "--archive", archive, "--archive-interval", "1s")
	p.must("put", "k", "after the kill")
	p.must("backup", backups)
	p.must("put", "k", "the end")
	want := p.must("digest")
	require.Zero(t, p.end(syscall.SIGTERM))
	require.Contains(t, requireOK(t, "backup", "prune", backups, "--keep", "1", "--archive", archive), "pieces of the archive")
	assert.Equal(t, want, restored())
	r := command(t, "", nil, "restore", backups, filepath.Join(base, "x"), "--archive", archive, "--to-version", backedUp)
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "older than the oldest backup")
}

// archives returns once the archive has a version that readers see, and a time at which they did.
func (p *process) archives(version string) {
	p.t.Helper()
	seen := time.Now()
	age := regexp.MustCompile(`(?m)^kvd_archive_age_seconds (.*)$`)
	testwait.Until(p.t, func() bool {
		asked := time.Now()
		page := p.metrics()
		found := age.FindStringSubmatch(page)
		require.NotNil(p.t, found, page)
		seconds, err := strconv.ParseFloat(found[1], 64)
		require.NoError(p.t, err)
		old := time.Duration(seconds * float64(time.Second))
		return strings.Contains(page, "\nkvd_archive_version "+version+"\n") && asked.Add(-old).After(seen)
	}, "it is archived")
}

// moment returns the end of this millisecond, to which the archive rounds times up, once it is over.
func moment(t *testing.T) string {
	t.Helper()
	end := time.Now().Truncate(time.Millisecond).Add(time.Millisecond)
	testwait.Until(t, func() bool { return time.Now().After(end) }, "the millisecond is over")
	return end.UTC().Format(time.RFC3339Nano)
}

func TestArchiveSettings(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--archive", file}, 64, "is a file"},
		{[]string{"--archive", base}, 64, "holds other files"},
		{[]string{"--archive", filepath.Join(base, "not", "mounted")}, 64, "is its disk mounted?"},
		{[]string{"--archive", filepath.Join(base, "a"), "--archive-interval", "10ms"}, 64, "at least 1s"},
		{[]string{"--archive", filepath.Join(base, "a"), "--archive-backlog", "1MiB"}, 64, "at least 64MiB"},
		{[]string{"--archive", filepath.Join(base, "a"), "--dev"}, 64, "leave out --dev"},
	} {
		args := append([]string{"serve", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, c.args...)
		r := command(t, "", nil, args...)
		assert.Equal(t, c.code, r.code, "%v: %s", c.args, r.err)
		assert.Contains(t, r.err, c.want)
		assert.Empty(t, r.out)
	}
}

// At a time before its first write the store was empty, at version 0. No restore takes that for the
// end of the archive.
func TestRestoreToATimeBeforeTheFirstWrite(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	data, archive, backups := filepath.Join(base, "data"), filepath.Join(base, "archive"), filepath.Join(base, "backups")
	require.NoError(t, os.Mkdir(data, 0o700))
	p := serve(t, data, "--archive", archive, "--archive-interval", "1s")
	at := moment(t) // nothing was asked of the server yet
	p.must("put", "k", "written later")
	p.must("backup", backups)
	p.must("put", "last", "written later")
	require.Zero(t, p.end(syscall.SIGTERM))
	named, err := filepath.Glob(filepath.Join(backups, "*.backup"))
	require.NoError(t, err)
	require.Len(t, named, 1)
	for from, want := range map[string]string{backups: "version 0 is older than the oldest backup", named[0]: "version 0 is older than backup"} {
		for _, to := range [][]string{{"--to-time", at}, {"--to-version", "0"}} {
			restored := filepath.Join(t.TempDir(), "restored")
			r := command(t, "", nil, append([]string{"restore", from, restored, "--archive", archive}, to...)...)
			assert.Equal(t, 64, r.code, "the backup is newer than %v: %s%s", to, r.out, r.err)
			assert.Contains(t, r.err, want)
			assert.NoDirExists(t, restored)
		}
	}
}
