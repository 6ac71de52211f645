package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Exit codes of client commands, in addition to those of package daemon.
const (
	exitNotFound    = 3
	exitCondition   = 4
	exitUnavailable = 5
	exitConflict    = 6
	exitDenied      = 7
)

func exitCode(err error) int {
	if conditionFailed(err) {
		return exitCondition
	}
	if _, ok := errors.AsType[*adminAddressError](err); ok {
		return exitUnavailable
	}
	for _, class := range []struct {
		err  error
		code int
	}{
		{kvd.ErrUncertain, daemon.ExitError}, // first, since it may wrap a deadline
		{errDamageFound, daemon.ExitDamaged},
		{kvd.ErrCorrupt, daemon.ExitDamaged}, // which is not kv.ErrCorrupt: it is of a server
		{kvd.ErrConflict, exitConflict},
		{kvd.ErrNotFound, exitNotFound},
		{kvd.ErrInvalid, daemon.ExitUsage},
		{kvd.ErrTooLarge, daemon.ExitUsage},
		{kvd.ErrUnauthenticated, exitDenied},
		{kvd.ErrPermission, exitDenied},
		{kvd.ErrUnavailable, exitUnavailable},
		{kvd.ErrOverloaded, exitUnavailable},
		{kvd.ErrReadOnly, exitUnavailable},
		{kvd.ErrRecovered, exitUnavailable},
		{context.DeadlineExceeded, exitUnavailable},
	} {
		if errors.Is(err, class.err) {
			return class.code
		}
	}
	return daemon.ExitCode(err)
}

// conditionFailed reports whether a condition of a write, or an assertion of a script, did
// not hold, so that nothing was written. The client has the same sentinel for transactions
// that conflict.
func conditionFailed(err error) bool {
	e, ok := errors.AsType[*kvd.Error](err)
	return ok && e.Reason == kvdpb.ReasonConditionFailed && !errors.Is(err, kvd.ErrUncertain)
}

// closedHint is for a connection that was reset, so that the server's reason was lost: a server that uses
// TLS resets one if the client wrote more than it has read.
const closedHint = "the server closed the connection: it may just have been stopped; if it uses TLS, give its authority's certificate with --tls-ca; " +
	"if it wants a client certificate, give one with --tls-cert and --tls-key"

// handshakeHint says what to do if a server was reached and its side of TLS is another one, "" for all
// other errors. gRPC has no errors for these, only texts.
func handshakeHint(err error) string {
	if !errors.Is(err, kvd.ErrUnavailable) {
		return ""
	}
	for _, hint := range []struct{ said, text string }{
		{"does not look like a TLS handshake", "the server answers, and without TLS: leave --tls-ca, --tls-cert and --tls-key out, or see whether the address is right"},
		{"x509: certificate signed by unknown authority", "the server answers with a certificate of another authority: give the authority's certificate with --tls-ca"},
		{"tls: certificate required", "the server wants a client certificate: give one with --tls-cert and --tls-key"},
		{"remote error: tls: ", "the server refuses the client certificate: its authority must be one of the server's --client-ca, and it must not have expired"},
		{"x509: ", "the server answers with a certificate that is not good for this address, or not now: see its names and dates, and the clock of this machine"},
		{"reading server preface: EOF", "the server answers and closes the connection at once: if it uses TLS, give its authority's certificate with --tls-ca"},
		{"broken pipe", closedHint},
		{"connection reset by peer", closedHint},
	} {
		if strings.Contains(err.Error(), hint.said) {
			return hint.text
		}
	}
	return ""
}

// explain adds to an error what the user can do about it.
func explain(err error) string {
	if conditionFailed(err) {
		return err.Error() + "\n" + instead(err)
	}
	if _, ok := errors.AsType[*adminAddressError](err); ok {
		return err.Error()
	}
	if _, ok := errors.AsType[repairLost](err); ok {
		return err.Error()
	}
	if e, ok := errors.AsType[*kvd.Error](err); ok && e.Reason == kvdpb.ReasonNotLeader && !errors.Is(err, kvd.ErrUncertain) && !errors.Is(err, errOfCluster) {
		return err.Error() + "\nwith the addresses of all nodes in --addr or KVD_ADDR, separated by commas, the command finds the one that leads; kvd cluster status shows them"
	}
	if hint := handshakeHint(err); hint != "" {
		return err.Error() + "\n" + hint
	}
	for _, hint := range []struct {
		err  error
		text string
	}{
		{errOfCluster, "kvd cluster status shows whether the change was made; it can be repeated"},
		{kvd.ErrUncertain, "read the keys to find out whether the write happened; it can be repeated safely if no other client writes them"},
		{kvd.ErrConflict, "nothing was written, since other clients write the same keys; try again"},
		{kvd.ErrVersionGone, "the command took longer than the server keeps an old version: read less at a time. Or --min-version names a version that the cluster does not have: leave it out"},
		{kvd.ErrReadOnly, "/readyz?verbose at the server's admin address tells the reason"},
		{kvd.ErrUnauthenticated, "give a token with --token-file or KVD_TOKEN, or a client certificate with --tls-cert and --tls-key"},
		{kvd.ErrPermission, "kvd token list, at the server, shows the rights of each client"},
		{kvd.ErrUnavailable, "is the server running? Start one with kvd serve, or give its address with --addr or KVD_ADDR"},
		{kvd.ErrOverloaded, "try again later, or with fewer concurrent requests"},
		{context.DeadlineExceeded, "the server did not answer in time; a longer --timeout may help"},
		{backup.ErrBusy, "if no kvd backup, kvd backup prune or kvd serve --archive runs there, look for the process with this pid"},
		{errDamageFound, "a backup has the data. Stop the server and use kvd repair --range, which keeps what can be read of a damaged table; deleting the range of keys drops the whole table"},
		{kvd.ErrCorrupt, "kvd scrub lists every damaged place of the running server; everything else is served. A backup has the data, or stop the server and use kvd repair --range, which keeps what can be read of a damaged table"},
		{errTokensBusy, "look for the process with this pid"},
		{vfs.ErrLocked, "stop the process that has the store open, or give another directory"},
		{kv.ErrUnsupportedVersion, "a newer kvd wrote this; use that version"},
		{errOfBackup, "kvd backup verify and kvd backup archive --verify name every damaged file. The store is not concerned: restore another backup, or make a new one"},
		{engine.ErrDiffers, "remove the node from the cluster, and add a new node with an empty directory; keep this one to find the cause"},
		{kv.ErrCorrupt, "kvd check DIR lists every damaged file of a stopped store; nothing was changed. If only tables or value files are damaged, kvd repair --range repairs them, and kvd serve --allow-damaged serves the rest"},
	} {
		if errors.Is(err, hint.err) {
			return err.Error() + "\n" + hint.text
		}
	}
	return err.Error()
}

// errOfBackup marks damage of a backup or an archive.
var errOfBackup = errors.New("a backup or an archive is damaged")

// ofBackup marks the damage that a command finds in a backup or an archive, so that the user is
// not told to look for damage of a store.
func ofBackup(run func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if errors.Is(err, kv.ErrCorrupt) && !errors.Is(err, kvd.ErrCorrupt) {
			return ofBackupError{err}
		}
		return err
	}
}

// ofBackupError has the text of the error, and is also errOfBackup.
type ofBackupError struct{ error }

func (e ofBackupError) Unwrap() []error { return []error{e.error, errOfBackup} }

// instead tells what a failed condition found.
func instead(err error) string {
	e, _ := errors.AsType[*kvd.Error](err)
	switch {
	case e.Op == opAssert: // the message of the error has it
		return "nothing was written"
	case e.Version == 0:
		return "the key is not there"
	}
	return fmt.Sprintf("the key is present with version %d; kvd get --version prints version and value", e.Version)
}

// named makes a usage error of an error that a file or directory that the user gave does
// not exist.
func named(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usagef("%w", err)
	case errors.Is(err, syscall.ENOTDIR):
		return usagef("%w: it, or one of its parents, is a file, not a directory", err)
	}
	return err
}
