package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/vfs"
)

func (a *app) certCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make certificates to try TLS with",
		Args:  noArguments,
	}
	cmd.AddCommand(a.certDevCommand(), a.certNodesCommand())
	return cmd
}

// devLasts is how long throw-away certificates last.
const devLasts = 30 * 24 * time.Hour

func (a *app) certDevCommand() *cobra.Command {
	dir, hosts, clients, force := "", []string{}, []string{}, false
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Make a throw-away authority, and certificates for a server and clients",
		Long: "Make a throw-away authority, and certificates for a server and clients, to try TLS\n" +
			"with. They are valid for 30 days (ECDSA P-256). The key of the authority is not\n" +
			"kept, so no further certificate can be made with it: run the command again.\n\n" +
			"The certificate of the client app has the URI kvd:app.",
		Args: noArguments,
	}
	cmd.Flags().StringVar(&dir, "dir", "kvd-certs", "directory for the files; created if it is missing")
	cmd.Flags().StringSliceVar(&hosts, "host", []string{"localhost", "127.0.0.1", "::1"}, "names and addresses by which clients reach the server")
	cmd.Flags().StringSliceVar(&clients, "client", []string{"app", "admin"}, "names of the clients")
	cmd.Flags().BoolVar(&force, "force", false, "replace certificates that are there")
	cmd.RunE = func(*cobra.Command, []string) error { return a.certDev(dir, hosts, clients, force) }
	return cmd
}

func (a *app) certDev(dir string, hosts, clients []string, force bool) error {
	if len(hosts) == 0 {
		return usagef("--host is empty; name the server")
	}
	for _, name := range clients {
		if name == "" || name == "ca" || name == "server" || strings.ContainsFunc(name, func(r rune) bool { return !isNameRune(r) }) {
			return usagef("--client %q: want letters, digits, - and _; not ca or server, which are the names of other files", name)
		}
	}
	if err := checkFree(dir, force); err != nil {
		return err
	}
	set, err := certificate.Dev(hosts, clients, time.Now(), devLasts)
	if err != nil {
		return err
	}
	files := []certFile{{"ca.pem", set.CA}, {"server.pem", set.Server.Certificate}, {"server.key", set.Server.Key}}
	for name, pair := range set.Clients {
		files = append(files, certFile{name + ".pem", pair.Certificate}, certFile{name + ".key", pair.Key})
	}
	if err := writeCertFiles(dir, files); err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	fmt.Fprintf(a.out, "certificates for %s in %s, valid for 30 days; try:\n\n", strings.Join(hosts, ", "), dir)
	fmt.Fprintf(a.out, "kvd serve --tls-cert %s --tls-key %s --client-ca %s\n", in("server.pem"), in("server.key"), in("ca.pem"))
	if len(clients) > 0 {
		fmt.Fprintf(a.out, "kvd put hello world --addr %s --tls-ca %s --tls-cert %s --tls-key %s\n",
			net.JoinHostPort(hosts[0], "7070"), in("ca.pem"), in(clients[0]+".pem"), in(clients[0]+".key"))
	}
	return nil
}

// checkFree refuses a directory with certificates, unless they are to be replaced.
func checkFree(dir string, force bool) error {
	_, err := vfs.OS.Stat(filepath.Join(dir, "ca.pem"))
	switch {
	case force || errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return named(err)
	}
	return usagef("%s holds certificates already; give another --dir, or --force to replace them", dir)
}

func isNameRune(r rune) bool {
	return r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}
