package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/bytesize"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// leastRate is the least rate of a backup. A server cuts off a client that takes nothing.
const leastRate = 16 << 10

func (a *app) backupCommand() *cobra.Command {
	var rate rateFlag
	cmd := &cobra.Command{
		Use:   "backup DIR|-",
		Short: "Back up a running server",
		Long: "Copy one version of the whole store from a running server to a directory of\n" +
			"backups, which is made if need be. The backup holds every write that was\n" +
			"acknowledged before the command began. The server verifies each file before it\n" +
			"sends it; clients are served meanwhile.\n\n" +
			"--rate bounds what the server reads of its files, to verify and to send them. It reads\n" +
			"two bytes for each one that it sends, of its log three, so a backup of new data takes\n" +
			"two or three times as long as the rate says. Without --rate the server reads 16MiB a\n" +
			"second. What is compared in DIR is read at the same rate.\n\n" +
			"Backups in one directory share files, so a backup copies only what is new. It reads\n" +
			"what earlier ones copied, compares the checksums, and copies again what is damaged.\n" +
			"A backup that was interrupted is no backup; the command, repeated, uses the files that\n" +
			"were copied if they are whole. The argument - writes one tar archive to standard output.\n\n" +
			"With --digest the command first reads every key at the version of the backup, and\n" +
			"stores the digest with it: kvd digest prints the same for the restored store, unless\n" +
			"keys have expired since.\n\n" +
			"A person or program that can read a backup can read the data, so protect it\n" +
			"like the store. If the server has identities, the command needs an administrator.\n\n" +
			"Exit codes: 0 the backup is complete; 5 the server cannot be reached; 7 not signed in\n" +
			"or not allowed; 64 DIR holds other files; 65 a file of the store is damaged; 75\n" +
			"another process is changing DIR.",
		Example: "  kvd backup /backups/orders --addr db1:7070 --rate 50MiB\n" +
			"  kvd backup list /backups/orders\n" +
			"  kvd backup verify /backups/orders\n" +
			"  kvd backup prune /backups/orders --keep 7\n" +
			"  kvd restore /backups/orders /var/lib/kvd\n" +
			"  kvd backup - | ssh host 'cat > orders.tar'",
		Args: needs("DIR"),
	}
	server := a.connection(cmd)
	rate.flag(cmd, "have the server read at most this much a second, such as 50MiB; at least 16KiB (default 16MiB)")
	withDigest := cmd.Flags().Bool("digest", false, "first read all keys at the version of the backup, and store their digest with it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rate.bytes = cmp.Or(rate.bytes, pace.BackupRate) // of the server, and of what is compared here
		return server.with(func(c *kvd.Client) (err error) {
			stream := args[0] == "-"
			if !stream {
				if err := backup.CheckDirectory(vfs.OS, clean(args[0])); err != nil {
					return err
				}
			}
			b, err := c.Backup(cmd.Context(), rate.bytes) // before DIR is made: if the server refuses it, there is none
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, b.Close()) }()
			var dir *backup.Directory
			if !stream {
				if dir, err = backup.LockDirectory(vfs.OS, clean(args[0]), true); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, dir.Close()) }()
			}
			digest := ""
			if *withDigest {
				if digest, err = a.digestAt(cmd.Context(), c, b.Info().Version); err != nil {
					return err
				}
			}
			progress, o := a.backupProgress(rate.bytes)
			o.Digest = digest
			if stream {
				m, err := backup.WriteStream(cmd.Context(), a.out, backupSource{b}, time.Now(), o)
				progress.close()
				if err == nil {
					_, err = fmt.Fprintf(a.err, "backup of version %d: %d files, %s%s\n", m.Version, len(m.Files), humanBytes(m.Bytes()), digestNote(m))
				}
				return err
			}
			r, err := dir.Create(cmd.Context(), backupSource{b}, time.Now(), o)
			progress.close()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "backup %s of version %d: %d files, %s; copied %d files, %s%s\n",
				r.ID, r.Version, len(r.Files), humanBytes(r.Bytes()), r.Copied, humanBytes(r.CopiedBytes), digestNote(r.Manifest))
			return err
		})
	}
	cmd.AddCommand(a.backupListCommand(), a.backupVerifyCommand(), a.backupPruneCommand(), a.backupArchiveCommand())
	return cmd
}

// digestNote returns the digest of a backup that has one, for a message.
func digestNote(m *backup.Manifest) string {
	if m.Digest == "" {
		return ""
	}
	return "; digest " + m.Digest
}

// backupSource is a backup of the client as a backup.Source.
type backupSource struct{ b *kvd.Backup }

// Info implements backup.Source.
func (s backupSource) Info() backup.Info {
	i := s.b.Info()
	info := backup.Info{StoreID: i.StoreID, Version: kv.SeqNum(i.Version)}
	for _, f := range i.Files {
		info.Files = append(info.Files, backup.File(f))
	}
	return info
}

// Fetch implements backup.Source.
func (s backupSource) Fetch(_ context.Context, name string, known []uint64) (uint64, io.Reader, error) {
	return s.b.Fetch(name, known...)
}

func (a *app) backupListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list DIR",
		Short: "List the backups in a directory",
		Long: "List the backups in a directory, the oldest first: id, time, version of the store,\n" +
			"files and size. Backups share files, so their sizes do not add up.",
		Args: needs("DIR"),
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		dir, err := backup.OpenDirectory(vfs.OS, clean(args[0]))
		if err != nil {
			return err
		}
		all, damaged := dir.Manifests()
		t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "ID\tTIME\tVERSION\tFILES\tSIZE")
		for _, m := range all {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", m.ID, m.Time().Local().Format("2006-01-02 15:04:05"), m.Version, len(m.Files), humanBytes(m.Bytes()))
		}
		return errors.Join(t.Flush(), damaged)
	}
	cmd.RunE = ofBackup(cmd.RunE)
	return cmd
}

func (a *app) backupVerifyCommand() *cobra.Command {
	var newest bool
	cmd := &cobra.Command{
		Use:   "verify BACKUP",
		Short: "Read every byte of backups and compare the checksums",
		Long: backupArgument + "\n\nOf a directory all backups are verified, unless --newest is given. The command\n" +
			"names each damaged file, and the backups that need it. A damaged file can be\n" +
			"removed; the next backup then copies it again, if the store still has it.\n\n" +
			"Exit codes: 0 the backups are whole; 65 a file is damaged or missing.",
		Args: needs("BACKUP"),
	}
	var rate rateFlag
	rate.flag(cmd, copyRate)
	cmd.Flags().BoolVar(&newest, "newest", false, "verify only the newest backup of a directory")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		source, err := a.openBackup(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.close()
		progress, o := a.backupProgress(rate.bytes)
		if source.stream != nil {
			m, err := backup.VerifyStream(cmd.Context(), source.stream, o)
			progress.close()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "%s is whole: version %d, %d files, %s\n", args[0], m.Version, len(m.Files), humanBytes(m.Bytes()))
			return err
		}
		var all []*backup.Manifest
		var damaged error
		if source.id == "" && !newest {
			all, damaged = source.dir.Manifests()
		}
		if len(all) == 0 && damaged == nil { // no backup is an error, too
			var m *backup.Manifest
			m, damaged = source.dir.Load(source.id)
			if m != nil {
				all = append(all, m)
			}
		}
		err = errors.Join(damaged, source.dir.Verify(cmd.Context(), all, o))
		progress.close()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "%d backups are whole\n", len(all))
		return err
	}
	cmd.RunE = ofBackup(cmd.RunE)
	return cmd
}

func (a *app) backupPruneCommand() *cobra.Command {
	var keep int
	var archive string
	cmd := &cobra.Command{
		Use:   "prune DIR --keep N",
		Short: "Remove all backups in a directory but the newest",
		Long: "Remove all backups in a directory but the newest N, and the files that no other\n" +
			"backup needs, among them those of interrupted backups. Nothing is removed if\n" +
			"the list of files of a backup that stays cannot be read.",
		Args: needs("DIR"),
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "how many backups stay; at least 1, required")
	cmd.Flags().StringVar(&archive, "archive", "", "remove the part of this archive of the commit log too that only older backups need")
	cmd.RunE = func(_ *cobra.Command, args []string) (err error) {
		if keep < 1 {
			return usagef("give --keep with the number of backups that stay, at least 1")
		}
		dir, err := backup.LockDirectory(vfs.OS, clean(args[0]), false)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dir.Close()) }()
		p, err := dir.Prune(keep)
		if len(p.Backups) > 0 || p.Files > 0 || err == nil {
			fmt.Fprintf(a.out, "removed %d backups and %d files, %s\n", len(p.Backups), p.Files, humanBytes(p.Bytes))
		}
		if err != nil || archive == "" {
			return err
		}
		return a.pruneArchive(dir, clean(archive))
	}
	cmd.RunE = ofBackup(cmd.RunE)
	return cmd
}

func (a *app) backupArchiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive ARCHIVE",
		Short: "Show what an archive of the commit log holds",
		Long: "Show what the directory of kvd serve --archive holds, oldest first. Each line is a\n" +
			"part of the log without gaps: with a backup whose version lies in it, kvd restore\n" +
			"--archive restores any later version of that line. Between two lines a part of the\n" +
			"log is missing, and no restore crosses that.\n\n" +
			"Exit codes: 0 it could be read; 65 a file is damaged or missing.",
		Args: needs("ARCHIVE"),
	}
	verify := cmd.Flags().Bool("verify", false, "read every byte and compare the checksums")
	var rate rateFlag
	rate.flag(cmd, copyRate)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		archive, err := backup.OpenArchive(vfs.OS, clean(args[0]))
		if err != nil {
			return err
		}
		pieces, err := archive.Pieces()
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "FROM VERSION\tTO VERSION\tFROM\tTO\tPIECES\tSIZE\tMISSING BEFORE")
		for _, r := range backup.Runs(pieces) {
			const layout = "2006-01-02 15:04:05"
			fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%d\t%s\t%s\n", r.After, r.Version, r.Since.Local().Format(layout), r.Until.Local().Format(layout),
				r.Pieces, humanBytes(r.Bytes), r.Gap)
		}
		if err := t.Flush(); err != nil || !*verify {
			return err
		}
		progress, o := a.backupProgress(rate.bytes)
		err = archive.Verify(cmd.Context(), pieces, o)
		progress.close()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "%d pieces are whole\n", len(pieces))
		return err
	}
	cmd.RunE = ofBackup(cmd.RunE)
	return cmd
}

// pruneArchive removes what no restore of a backup in dir needs.
func (a *app) pruneArchive(dir *backup.Directory, name string) error {
	archive, err := backup.OpenArchive(vfs.OS, name)
	if err != nil {
		return err
	}
	all, err := dir.Manifests()
	if err != nil || len(all) == 0 {
		return err
	}
	p, err := archive.Prune(all)
	if p.Files > 0 || err == nil {
		fmt.Fprintf(a.out, "removed %d pieces of the archive, %s\n", p.Files, humanBytes(p.Bytes))
	}
	return err
}

const backupArgument = "BACKUP is a directory of backups, of which the newest counts; the file ID.backup of\n" +
	"one backup in it; a tar archive that kvd backup - wrote; or - for such an archive on\n" +
	"standard input."

func (a *app) restoreCommand() *cobra.Command {
	var rate rateFlag
	var to restorePoint
	cmd := &cobra.Command{
		Use:   "restore BACKUP DIR",
		Short: "Make a store of a backup",
		Long: "Copy a backup to a directory, which must be empty or new. Every checksum is\n" +
			"compared. kvd serve --data DIR then opens the store.\n\n" + backupArgument + "\n\n" +
			"The store has the contents of the version that was backed up. With --archive, the\n" +
			"directory to which kvd serve --archive copied the commit log, it has those of a\n" +
			"later version: of the end of the archive, of --to-version, or of --to-time. Every\n" +
			"write up to that version is in it and no other, and of a transaction all or\n" +
			"nothing. Of a directory of backups, the newest that is old enough is taken. A time\n" +
			"that the archive does not know, because the server was killed or ran without the\n" +
			"archive, is refused.\n\n" +
			"The restored store refuses a read or a transaction at a version that a client has\n" +
			"from another copy of the store. If the command is interrupted, the directory is no\n" +
			"store: remove it and restore again. A restored store needs an archive of its own.\n\n" +
			"Exit codes: 0 DIR is a store; 64 DIR is not empty, BACKUP is no backup, or the version\n" +
			"or time cannot be restored; 65 a file of the backup or the archive is damaged or\n" +
			"missing.",
		Example: "  kvd restore /backups/orders /var/lib/kvd\n" +
			"  kvd restore /backups/orders/20261123T014200.123Z.backup /tmp/yesterday\n" +
			"  kvd restore - /var/lib/kvd < orders.tar\n" +
			"  kvd restore /backups/orders /var/lib/kvd --archive /archive/orders\n" +
			"  kvd restore /backups/orders /tmp/noon --archive /archive/orders --to-time 2026-11-23T12:00:00Z",
		Args: needs("BACKUP", "DIR"),
	}
	rate.flag(cmd, copyRate)
	to.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := to.open(cmd); err != nil {
			return err
		}
		source, err := a.openBackup(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.close()
		progress, o := a.backupProgress(rate.bytes)
		m, replay, err := to.restore(cmd.Context(), source, clean(args[1]), o)
		progress.close()
		if to.skipped != nil {
			fmt.Fprintf(a.err, "an older backup was taken, because newer ones cannot be read: %v\n", to.skipped)
		}
		if err != nil {
			return err
		}
		if replay == nil {
			_, err = fmt.Fprintf(a.out, "restored version %d of backup %s to %s: %d files, %s%s\n",
				m.Version, m.ID, args[1], len(m.Files), humanBytes(m.Bytes()), digestNote(m))
			return err
		}
		_, err = fmt.Fprintf(a.out, "restored version %d to %s: backup %s of version %d, %d files, %s; archive, %s\n",
			replay.Version, args[1], m.ID, m.Version, len(m.Files), humanBytes(m.Bytes()), humanBytes(replay.Bytes()))
		return err
	}
	cmd.RunE = ofBackup(cmd.RunE)
	return cmd
}

// restorePoint is the flags that say up to where a restore goes.
type restorePoint struct {
	dir, at string
	version uint64 // the flag

	end     backup.End
	archive *backup.Archive // nil: the backup alone
	pieces  []*backup.Piece
	skipped error // backups that were passed over because their manifest is damaged
}

func (p *restorePoint) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.dir, "archive", "", "directory to which kvd serve --archive copied the commit log")
	cmd.Flags().Uint64Var(&p.version, "to-version", 0, "restore this version (default: the end of the archive)")
	cmd.Flags().StringVar(&p.at, "to-time", "", "restore what readers saw at this time, or up to a second earlier, such as 2026-11-23T12:00:00Z")
}

// open reads what the archive holds, and finds the version. That may be 0: at the time, or by the
// flag, nothing was written to the store yet.
func (p *restorePoint) open(cmd *cobra.Command) (err error) {
	byVersion := cmd.Flags().Changed("to-version")
	switch {
	case p.dir == "" && (byVersion || p.at != ""):
		return usagef("--to-version and --to-time need --archive, the directory of the archived commit log")
	case byVersion && p.at != "":
		return usagef("give --to-version or --to-time, not both")
	case p.dir == "":
		return nil
	}
	if byVersion {
		p.end = backup.UpTo(kv.SeqNum(p.version))
	}
	if p.archive, err = backup.OpenArchive(vfs.OS, clean(p.dir)); err != nil {
		return err
	}
	if p.pieces, err = p.archive.Pieces(); err != nil || p.at == "" {
		return err
	}
	at, err := time.Parse(time.RFC3339, p.at)
	if err != nil {
		return usagef("--to-time %q is no time such as 2026-11-23T12:00:00Z or 2026-11-23T13:00:00.5+01:00", p.at)
	}
	version, err := p.archive.VersionAt(p.pieces, at)
	p.end = backup.UpTo(version)
	return err
}

// plan is what backup.RestoreStream calls.
func (p *restorePoint) plan(m *backup.Manifest) (*backup.Replay, error) {
	return p.archive.Plan(p.pieces, m, p.end)
}

func (p *restorePoint) restore(ctx context.Context, source *openedBackup, target string, o backup.Options) (m *backup.Manifest, replay *backup.Replay, err error) {
	plan := func(m *backup.Manifest) (_ *backup.Replay, err error) {
		if p.archive != nil {
			replay, err = p.plan(m)
		}
		return replay, err
	}
	if source.stream != nil {
		m, err = backup.RestoreStream(ctx, source.stream, plan, vfs.OS, target, o)
		return m, replay, err
	}
	if version, given := p.end.Version(); source.id == "" && given {
		m, p.skipped, err = source.dir.LoadBefore(version)
	} else {
		m, err = source.dir.Load(source.id)
	}
	if err == nil {
		_, err = plan(m)
	}
	if err == nil {
		err = source.dir.Restore(ctx, m, replay, target, o)
	}
	return m, replay, err
}

// openedBackup is what the argument BACKUP names.
type openedBackup struct {
	dir    *backup.Directory
	id     string    // of one backup in dir; empty: none is named
	stream io.Reader // instead of dir
	file   *os.File
}

func (o *openedBackup) close() {
	if o.file != nil {
		_ = o.file.Close() // only read
	}
}

// openBackup finds out what an argument names.
func (a *app) openBackup(ctx context.Context, name string) (*openedBackup, error) {
	if name == "-" {
		return &openedBackup{stream: until(ctx, a.in)}, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, named(err)
	}
	if id, ok := strings.CutSuffix(filepath.Base(name), ".backup"); ok && !info.IsDir() && backup.IsID(id) {
		dir, err := backup.OpenDirectory(vfs.OS, path.Dir(clean(name)))
		if err == nil || !errors.Is(err, kv.ErrInvalidArgument) {
			return &openedBackup{dir: dir, id: id}, err
		}
		// A stream may have any name.
	}
	if info.IsDir() {
		dir, err := backup.OpenDirectory(vfs.OS, clean(name))
		return &openedBackup{dir: dir}, err
	}
	f, err := os.Open(name) // #nosec G304 -- the operator names the file
	return &openedBackup{stream: until(ctx, f), file: f}, err
}

// clean returns the name of a directory with slashes.
func clean(name string) string { return path.Clean(filepath.ToSlash(name)) }

// backupProgress starts to show the progress of a copy.
func (a *app) backupProgress(rate int64) (*progress, backup.Options) {
	p := startProgress(a.err, "bytes", 0)
	return p, backup.Options{Rate: rate, Progress: func(bytes, total int64) {
		p.done.Add(bytes)
		p.items.Add(bytes)
		p.total.Store(total)
	}}
}

// copyRate is what --rate does where this process copies or reads.
const copyRate = "copy or read at most this much a second, such as 50MiB; at least 16KiB (default: no limit)"

// rateFlag is the flag --rate.
type rateFlag struct{ bytes int64 }

func (r *rateFlag) flag(cmd *cobra.Command, usage string) { cmd.Flags().Var(r, "rate", usage) }

// Set implements pflag.Value. 50MiB/s is accepted too.
func (r *rateFlag) Set(text string) (err error) {
	r.bytes, err = bytesize.Parse(strings.TrimSuffix(text, "/s"))
	if err == nil && r.bytes < leastRate {
		err = fmt.Errorf("%q is less than 16KiB", text)
	}
	return err
}

func (r *rateFlag) String() string {
	if r.bytes == 0 {
		return ""
	}
	return bytesize.Format(r.bytes)
}
func (r *rateFlag) Type() string { return "size" }

// humanBytes formats a size with three digits or so.
func humanBytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
