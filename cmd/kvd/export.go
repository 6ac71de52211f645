package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) exportCommand() *cobra.Command {
	var enc encoding
	var keys bounds
	cmd := &cobra.Command{
		Use:   "export [FILE]",
		Short: "Write keys and values as JSON lines",
		Long: "Write keys and values as JSON lines that kvd import reads, to standard output or\n" +
			"to a new file, which gets its name once it is complete. All are read at one version,\n" +
			"and are in the order of the keys.\n\n" +
			`  {"key":"user/1","value":"Ada"}` + "\n" +
			`  {"key_base64":"AP8=","value_base64":"/w=="}` + "\n" +
			`  {"key":"session/7","value":"Ada","ttl_ms":59000}` + "\n\n" +
			"ttl_ms is the remaining time to live of a key that expires, in milliseconds.\n" +
			"--hex, --base64 and --escaped give the encoding of --prefix, --start and --end.",
		Args: mayHave("FILE"),
	}
	server := a.connection(cmd)
	enc.flags(cmd)
	keys.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := keys.decode(&enc)
		if err != nil {
			return err
		}
		return server.with(func(c *kvd.Client) error {
			return a.toFile(args, func(w io.Writer) error {
				progress := startProgress(a.err, "keys", 0)
				defer progress.close()
				for item, err := range c.Scan(cmd.Context(), r) {
					if err != nil {
						return err
					}
					// Without the version: an import cannot restore it, and exports of
					// equal contents are then equal, unless keys expire.
					l := newLine(&item)
					l.Version = 0
					if err := l.write(w); err != nil {
						return err
					}
					progress.items.Add(1)
				}
				if isTerminal(a.err) && !isTerminal(a.out) {
					fmt.Fprintf(a.err, "%s\n", progress.text(time.Since(progress.begin)))
				}
				return nil
			})
		})
	}
	return cmd
}

// toFile calls write with standard output, or with the file that the only argument names, which must
// not exist yet. The file gets its name once it is complete: until then it has another one beside it,
// which stays if the process is killed. A file that was not completed is removed.
func (a *app) toFile(args []string, write func(io.Writer) error) error {
	if len(args) == 0 || args[0] == "-" {
		out := bufio.NewWriterSize(a.out, 1<<16)
		return errors.Join(write(out), out.Flush())
	}
	name := args[0]
	if err := checkUntaken(name); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.kvd-tmp")
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<16)
	err = errors.Join(write(out), out.Flush(), f.Sync(), f.Close())
	if err == nil {
		err = checkUntaken(name) // it may have been taken meanwhile
	}
	if err == nil {
		err = vfs.Rotate(vfs.OS, f.Name(), name)
	}
	if err == nil {
		return nil
	}
	left := os.Remove(f.Name())
	if errors.Is(left, os.ErrNotExist) { // it has its name, and only that was not synced
		left = nil
	}
	return errors.Join(err, left)
}

// checkUntaken returns an error if a file, or anything else, has the name.
func checkUntaken(name string) error {
	_, err := os.Lstat(name)
	switch {
	case err == nil:
		return usagef("%s exists already; remove it first, or choose another name", name)
	case errors.Is(err, os.ErrNotExist):
		return nil
	}
	return err
}
