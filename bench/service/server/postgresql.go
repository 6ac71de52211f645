package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// PostgreSQLUser is the superuser of a PostgreSQL server, who must give the password.
const PostgreSQLUser = "bench"

// PostgreSQL is a private PostgreSQL server with an empty cluster, for this many clients.
// Its binaries are in dir. If dir is empty, they are those in $PATH, or the newest ones
// of Debian. PostgreSQL refuses to run as root: root starts it as the user postgres, who
// must be able to enter the directory of the server.
func PostgreSQL(dir, password string, clients int) (*Kind, error) {
	binaries := postgreSQLBinaries(dir)
	k := &Kind{Name: "postgresql", Binary: filepath.Join(binaries, "postgres"), args: func(address, dir string) []string {
		return []string{"-D", dir + "/data", "-p", port(address), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
			"-c", "max_connections=" + strconv.Itoa(clients+postgreSQLSpare),
			"-c", "shared_buffers=" + strconv.Itoa(BudgetBytes>>20) + "MB",
			"-c", "autovacuum=off", "-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "max_wal_size=8GB"}
	}}
	if k.Find() != nil {
		return k, nil // which Start reports
	}
	if os.Geteuid() == 0 {
		var err error
		if k.user, err = unprivileged("postgres"); err != nil {
			return nil, fmt.Errorf("PostgreSQL does not run as root: %w", err)
		}
	}
	k.prepare = func(ctx context.Context, dir string) error {
		return initCluster(ctx, filepath.Join(binaries, "initdb"), dir, password, k.user)
	}
	return k, nil
}

// postgreSQLSpare is how many connections PostgreSQL has beyond those of the benchmark:
// three are reserved for superusers.
const postgreSQLSpare = 8

// postgreSQLBinaries returns the directory of the binaries; empty: $PATH has them, or
// nothing has.
func postgreSQLBinaries(dir string) string {
	if dir != "" {
		return dir
	}
	if _, err := exec.LookPath("postgres"); err == nil {
		return ""
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // where Debian has them
	if err != nil || len(found) == 0 {
		return ""
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 if it is no number
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(version(a), version(b)) }))
}

// unprivileged returns the credential of a user.
func unprivileged(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// initCluster makes a cluster in dir/data that only PostgreSQLUser may use.
func initCluster(ctx context.Context, initdb, dir, password string, as *syscall.Credential) error {
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		return err
	}
	if as != nil {
		for _, name := range []string{dir, secret} {
			if err := os.Chown(name, int(as.Uid), int(as.Gid)); err != nil {
				return err
			}
		}
	}
	cmd := exec.CommandContext(ctx, initdb, "-D", filepath.Join(dir, "data"), "-U", PostgreSQLUser, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	cmd.Dir = "/" // the working directory may be closed to the user
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w; if it may not enter %s, choose another directory for temporary files\n%s", err, dir, text)
	}
	return os.Remove(secret)
}
