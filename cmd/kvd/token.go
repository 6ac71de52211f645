package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/internal/vfs"
)

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Manage the identities of clients: tokens, certificates and their rights",
		Long: "Manage the file that kvd serve --tokens reads: identities of clients, which are\n" +
			"tokens or certificates, and their rights. The file has hashes of tokens, not the\n" +
			"tokens. A server notices changes within seconds; a revoked token ends then, also on\n" +
			"connections that are open. The commands keep the mode, user and group of the file,\n" +
			"and on Linux its access control list and extended attributes. If they cannot, they\n" +
			"change nothing.",
		Example: "  kvd token new --file tokens.json --name app --read user/ --write user/ --out app.token\n" +
			"  kvd token allow --file tokens.json --certificate uri:kvd:ops --read \"\" --admin\n" +
			"  kvd token limit --file tokens.json app --max-requests 1000/s --max-connections 20\n" +
			"  kvd token list --file tokens.json\n" +
			"  kvd token revoke --file tokens.json app",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.tokenNewCommand(), a.tokenAllowCommand(), a.tokenLimitCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
	return cmd
}

// tokenFile is the file of the identities.
type tokenFile struct{ name string }

func (f *tokenFile) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "file", "", "the token file of the server; needed")
}

func (f *tokenFile) check() error {
	if f.name == "" {
		return usagef("--file is missing; name the file that kvd serve --tokens reads")
	}
	return nil
}

// maxTokenFile bounds the file. Guessed: as what the server reads.
const maxTokenFile = 4 << 20

func (f *tokenFile) read() ([]auth.Entry, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	text, err := vfs.ReadSmall(vfs.OS, f.name, maxTokenFile)
	if err != nil {
		return nil, err
	}
	entries, err := auth.Decode(text)
	if err != nil {
		return nil, usagef("%s is no token file: %w", f.name, err)
	}
	return entries, nil
}

// change replaces the file, or makes it if create is set. Others that change it wait.
func (f *tokenFile) change(create bool, change func([]auth.Entry) ([]auth.Entry, error)) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	name := f.name
	resolved, err := filepath.EvalSymlinks(name)
	switch {
	case err == nil:
		name = resolved // so that all names of the file have one lock
	case !create || !errors.Is(err, fs.ErrNotExist):
		return named(err)
	}
	lock, err := lockTokens(name)
	if err != nil {
		return named(err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	entries, err := f.read()
	if err != nil && !(create && errors.Is(err, fs.ErrNotExist)) {
		return named(err)
	}
	if entries, err = change(entries); err != nil {
		return err
	}
	text, err := auth.Encode(entries)
	if err != nil {
		return err
	}
	if _, err := auth.Decode(text); err != nil { // a bound, such as the number of prefixes
		return usagef("%w", err)
	}
	// A file that the server may not read would leave it with the old identities.
	err = vfs.Replace(vfs.OS, name, text)
	switch {
	case errors.Is(err, vfs.ErrAttributes) && (errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported)):
		return usagef("%w; %s was not changed: run the command as root, or remove the attribute that it names and set it again afterwards", err, name)
	case errors.Is(err, fs.ErrPermission):
		return usagef("%w; %s was not changed: run the command as the user to whom it belongs", err, name)
	}
	return err
}

// errTokensBusy: another process changes the token file, for longer than a command waits.
var errTokensBusy = errors.New("another process is changing the token file")

// tokensPatience is how long a command waits for others that change the file, each of which
// takes a few milliseconds.
const tokensPatience = 10 * time.Second

// lockTokens takes the lock of a token file, and waits for others that have it.
func lockTokens(tokens string) (io.Closer, error) {
	name := tokens + ".lock"
	if err := makeTokenLock(tokens, name); err != nil {
		return nil, err
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		lock, err := vfs.OS.Lock(name)
		if err == nil || !errors.Is(err, vfs.ErrLocked) {
			return lock, err
		}
		if time.Since(begin) > tokensPatience {
			return nil, fmt.Errorf("%w: %w", errTokensBusy, err)
		}
	}
}

// makeTokenLock makes the lock file of a token file that exists, with the same user and group: one
// that root made would keep the user of the token file out.
func makeTokenLock(tokens, name string) error {
	info, err := vfs.OS.Stat(tokens)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := vfs.OS.Create(name)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.SetAccess(lockAccess{info}), f.Close())
}

// lockAccess is the access of a lock file, which no other users open.
type lockAccess struct{ fs.FileInfo }

func (lockAccess) Mode() fs.FileMode { return 0o600 }

// rights are the flags of a new identity.
type rights struct {
	name        string
	read, write []string
	admin       bool
	monitor     bool
	expires     time.Duration
	quota       quotaFlags
}

// quotaFlags are the flags of a quota.
type quotaFlags struct {
	requests, bytes        string
	burst                  time.Duration
	snapshots, connections int
}

func (q *quotaFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&q.requests, "max-requests", "", "most operations in a second, a minute or an hour, such as 1000/s, 60/m or 10/h;\neach of a batch, a transaction or a frame counts, and each page of a scan")
	cmd.Flags().StringVar(&q.bytes, "max-bytes", "", "most bytes of requests and answers, such as 10MiB/s; what is sent in some time exceeds what\nthe rate allows in it, and the burst, by one answer at most")
	cmd.Flags().DurationVar(&q.burst, "burst", 0, "for how long what these rates allow is saved up; 0 means "+auth.DefaultBurst.String())
	cmd.Flags().IntVar(&q.snapshots, "max-snapshots", 0, "most snapshots open at a time, which transactions need, too; 0 means no limit but the server's")
	cmd.Flags().IntVar(&q.connections, "max-connections", 0, "most connections open at a time, likewise; a client in Go has up to four")
}

func (q *quotaFlags) quota() (quota auth.Quota, err error) {
	quota = auth.Quota{Burst: q.burst, Snapshots: q.snapshots, Connections: q.connections}
	if q.requests != "" {
		if quota.Requests, err = auth.ParseRate(q.requests); err != nil {
			return quota, usagef("--max-requests: %w", err)
		}
	}
	if q.bytes != "" {
		if quota.Bytes, err = auth.ParseByteRate(q.bytes); err != nil {
			return quota, usagef("--max-bytes: %w", err)
		}
	}
	if err := quota.Check(); err != nil {
		return quota, usagef("%w", err)
	}
	return quota, nil
}

func (r *rights) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.name, "name", "", "name of the client, for logs")
	cmd.Flags().StringArrayVar(&r.read, "read", nil, `prefix of keys that it may read; "" is all keys; may be repeated; \xNN stands for a byte`)
	cmd.Flags().StringArrayVar(&r.write, "write", nil, "prefix of keys that it may write, likewise; conditions and returned items need --read, too")
	cmd.Flags().BoolVar(&r.admin, "admin", false, "it may make administrative calls, such as kvd slowlog")
	cmd.Flags().BoolVar(&r.monitor, "monitor", false, "it may read metrics and the status at the admin address, for Prometheus; --admin may, too")
	cmd.Flags().DurationVar(&r.expires, "expires", 0, "how long it is valid, such as 720h; 0 means for ever")
	r.quota.flags(cmd)
}

// add adds an identity to those of a file. Without a quota of its own it has that of its name.
func add(entries []auth.Entry, e auth.Entry) []auth.Entry {
	for i := range entries {
		if entries[i].Name == e.Name && e.Quota == (auth.Quota{}) {
			e.Quota = entries[i].Quota
		}
	}
	return append(entries, e)
}

func (r *rights) identity() (auth.Identity, error) {
	i := auth.Identity{Name: r.name, Admin: r.admin, Monitor: r.monitor, Created: time.Now().UTC().Truncate(time.Second)}
	var err error
	if i.Quota, err = r.quota.quota(); err != nil {
		return i, err
	}
	switch {
	case r.expires < 0:
		return i, usagef("--expires %v: want a time to come", r.expires)
	case r.expires > 0:
		i.Expires = i.Created.Add(r.expires)
	}
	if len(r.read)+len(r.write) == 0 && !r.admin && !r.monitor {
		return i, usagef("without a right it may do nothing: give --read, --write, --monitor or --admin")
	}
	for _, list := range []struct {
		texts []string
		to    *[]string
	}{{r.read, &i.Read}, {r.write, &i.Write}} {
		for _, text := range list.texts {
			prefix, err := (&encoding{escaped: true}).decode("prefix", text)
			if err != nil {
				return i, err
			}
			*list.to = append(*list.to, string(prefix))
		}
	}
	if err := auth.CheckName(i.Name); err != nil {
		return i, usagef("--%w", err)
	}
	return i, nil
}

func (a *app) tokenNewCommand() *cobra.Command {
	var file tokenFile
	var r rights
	var out string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Add a token to the file, and print it or write it to a new file",
		Long: "Add a token to the file, which is made if it is missing, and print the token. That is\n" +
			"the only time: the file has its hash. Give it to a client in a file, by --token-file,\n" +
			"or in the variable KVD_TOKEN; not as an argument, which other users can see.\n\n" +
			"With --out the token is not printed, but written to a new file that only you may read\n" +
			"(mode 0600). A file that exists is refused, and nothing is added.",
		Example: "  kvd token new --file tokens.json --name app --read user/ --write user/ --out app.token",
		Args:    noArguments,
	}
	file.flag(cmd)
	r.flags(cmd)
	cmd.Flags().StringVar(&out, "out", "", "write the token to this file, which must not exist, instead of printing it")
	cmd.RunE = func(*cobra.Command, []string) error {
		i, err := r.identity()
		if err != nil {
			return err
		}
		token, id, hash := auth.NewToken()
		i.TokenID = id
		change := func() error {
			return file.change(true, func(entries []auth.Entry) ([]auth.Entry, error) {
				return add(entries, auth.Entry{Identity: i, Hash: hash}), nil
			})
		}
		if cmd.Flags().Changed("out") {
			if err := file.check(); err != nil {
				return err
			}
			if err := newTokenFile(out, token, change); err != nil {
				return err
			}
			a.say("the token is in %s\n", out)
			return nil
		}
		if err := change(); err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, token)
		return err
	}
	return cmd
}

// newTokenFile writes a token to a new file, and then has change add the identity: so none is added
// whose token is lost. If change fails, the file is removed.
func newTokenFile(name, token string, change func() error) error {
	if name == "" {
		return usagef("--out is empty; give the name of a new file")
	}
	err := vfs.WriteNew(vfs.OS, clean(name), []byte(token+"\n"))
	if errors.Is(err, fs.ErrExist) {
		return usagef("--out %s exists already; remove it first, or choose another name", name)
	}
	if err != nil {
		return named(err)
	}
	if err := change(); err != nil {
		return errors.Join(err, vfs.OS.Remove(clean(name)))
	}
	return nil
}

func (a *app) tokenAllowCommand() *cobra.Command {
	var file tokenFile
	var r rights
	var certificate string
	cmd := &cobra.Command{
		Use:   "allow",
		Short: "Add the owner of a client certificate to the file",
		Long: "Add the owner of a client certificate to the file, which is made if it is missing. A\n" +
			"certificate is known by its URI, as uri:kvd:app, or, if it has none, by its DNS name, as\n" +
			"dns:app.example, or its common name, as cn:app. One with several URIs is not known.",
		Args: noArguments,
	}
	file.flag(cmd)
	r.flags(cmd)
	cmd.Flags().StringVar(&certificate, "certificate", "", "name of the certificate: uri:, dns: or cn: and what it has")
	cmd.RunE = func(*cobra.Command, []string) error {
		if certificate == "" {
			return usagef("--certificate is missing; want uri:kvd:app, dns:app.example or cn:app")
		}
		if _, err := auth.CertificateName(certificate); err != nil {
			return usagef("--certificate %q: %w; want uri:kvd:app, dns:app.example or cn:app", certificate, err)
		}
		if r.name == "" {
			r.name = certificate
		}
		i, err := r.identity()
		if err != nil {
			return err
		}
		i.Certificate = certificate
		return file.change(true, func(entries []auth.Entry) ([]auth.Entry, error) {
			if slices.ContainsFunc(entries, func(e auth.Entry) bool { return sameCertificate(e.Certificate, certificate) }) {
				return nil, usagef("%s is in the file already; revoke it first", certificate)
			}
			return add(entries, auth.Entry{Identity: i}), nil
		})
	}
	return cmd
}

// sameCertificate reports whether two texts name the same certificate; an empty one names none.
func sameCertificate(a, b string) bool {
	one, err := auth.CertificateName(a)
	other, otherErr := auth.CertificateName(b)
	return a != "" && err == nil && otherErr == nil && one == other
}

func (a *app) tokenListCommand() *cobra.Command {
	var file tokenFile
	format := "table"
	cmd := &cobra.Command{Use: "list", Short: "List the identities of the file, without tokens", Args: noArguments}
	file.flag(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	cmd.RunE = func(*cobra.Command, []string) error {
		if format != "table" && format != "json" {
			return usagef("--output %q; want table or json", format)
		}
		entries, err := file.read()
		if err != nil {
			return named(err)
		}
		if format == "json" {
			return a.listTokensJSON(entries)
		}
		t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tKNOWN BY\tREAD\tWRITE\tADMIN\tMONITOR\tEXPIRES\tQUOTA")
		for i := range entries {
			e := &entries[i]
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%v\t%v\t%s\t%v\n", e.Name, knownBy(e), quoted(e.Read), quoted(e.Write), e.Admin, e.MayMonitor(), expiry(e.Expires, time.Now()), e.Quota)
		}
		return t.Flush()
	}
	return cmd
}

func (a *app) listTokensJSON(entries []auth.Entry) error {
	for i := range entries {
		e := &entries[i]
		line, err := json.Marshal(struct {
			Name        string    `json:"name"`
			Token       string    `json:"token,omitempty"`
			Certificate string    `json:"certificate,omitempty"`
			Read        []string  `json:"read,omitempty"`
			Write       []string  `json:"write,omitempty"`
			Admin       bool      `json:"admin"`
			Monitor     bool      `json:"monitor"`
			Created     time.Time `json:"created,omitzero"`
			Expires     time.Time `json:"expires,omitzero"`

			MaxRequests    string `json:"max_requests,omitempty"`
			MaxBytes       string `json:"max_bytes,omitempty"`
			Burst          string `json:"burst,omitempty"`
			MaxSnapshots   int    `json:"max_snapshots,omitempty"`
			MaxConnections int    `json:"max_connections,omitempty"`
		}{
			e.Name, e.TokenID, e.Certificate, escape.Strings(e.Read), escape.Strings(e.Write), e.Admin, e.MayMonitor(), e.Created, e.Expires,
			e.Quota.Requests.String(), e.Quota.Bytes.ByteString(), burst(e.Quota.Burst), e.Quota.Snapshots, e.Quota.Connections,
		})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(a.out, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

func burst(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func knownBy(e *auth.Entry) string {
	if e.TokenID != "" {
		return "token " + e.TokenID
	}
	return "certificate " + e.Certificate
}

func quoted(prefixes []string) string {
	if len(prefixes) == 0 {
		return "-"
	}
	return `"` + strings.Join(escape.Strings(prefixes), `" "`) + `"`
}

func expiry(at, now time.Time) string {
	switch {
	case at.IsZero():
		return "never"
	case !now.Before(at):
		return "expired"
	}
	return at.UTC().Format(time.RFC3339)
}

func (a *app) tokenLimitCommand() *cobra.Command {
	var file tokenFile
	var flags quotaFlags
	cmd := &cobra.Command{
		Use:   "limit NAME",
		Short: "Replace the quota of all identities of a name",
		Long: "Replace the quota of all identities of a name, which use it together. Without a limit\n" +
			"they have none any more. A server applies it within seconds, also to connections that\n" +
			"are open. What is beyond a quota is refused as OVERLOADED; the error says when to try\n" +
			"again, and the client in Go waits for that as long as its deadline allows.",
		Example: "  kvd token limit --file tokens.json app --max-requests 1000/s --max-bytes 10MiB/s --burst 5s",
		Args:    needs("NAME"),
	}
	file.flag(cmd)
	flags.flags(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		quota, err := flags.quota()
		if err != nil {
			return err
		}
		changed := 0
		err = file.change(false, func(entries []auth.Entry) ([]auth.Entry, error) {
			for i := range entries {
				if entries[i].Name == args[0] {
					entries[i].Quota = quota
					changed++
				}
			}
			if changed == 0 {
				return nil, usagef("%s has no identity with the name %q; kvd token list shows them", file.name, args[0])
			}
			return entries, nil
		})
		if err == nil {
			a.say("limited %d: %v\n", changed, quota)
		}
		return err
	}
	return cmd
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	var file tokenFile
	cmd := &cobra.Command{
		Use:   "revoke NAME|ID",
		Short: "Remove identities from the file: all of a name, or one by its token id or certificate",
		Args:  needs("NAME or ID"),
	}
	file.flag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		which, removed := args[0], 0
		err := file.change(false, func(entries []auth.Entry) ([]auth.Entry, error) {
			left := slices.DeleteFunc(slices.Clone(entries), func(e auth.Entry) bool {
				return e.Name == which || e.TokenID == which || sameCertificate(e.Certificate, which)
			})
			if removed = len(entries) - len(left); removed == 0 {
				return nil, usagef("%s has no identity with the name, token id or certificate %q; kvd token list shows them", file.name, which)
			}
			return left, nil
		})
		if err == nil {
			a.say("revoked %d\n", removed)
		}
		return err
	}
	return cmd
}
