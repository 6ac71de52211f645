package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// streamManifest is the name of the manifest in a stream.
const streamManifest = "BACKUP"

// WriteStream writes a backup of the source as a stream. Without an error the stream is
// whole.
func WriteStream(ctx context.Context, w io.Writer, source Source, now time.Time, o Options) (*Manifest, error) {
	info := source.Info()
	m := &Manifest{Format: formatWith(o.Digest), Digest: o.Digest, ID: now.UTC().Format(idLayout), Store: hex64(info.StoreID), Version: info.Version}
	total := int64(0)
	for _, f := range info.Files {
		total += f.Size
	}
	t := newTransfer(o, total)
	out := tar.NewWriter(w)
	header := func(name string, size int64) error {
		return out.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: m.Time(), Format: tar.FormatPAX})
	}
	for _, f := range info.Files {
		if err := checkName(f.Name); err != nil {
			return nil, err
		}
		sum, content, err := source.Fetch(ctx, f.Name, nil)
		if err != nil {
			return nil, fmt.Errorf("back up %s: %w", f.Name, err)
		}
		if err = header(f.Name, f.Size); err == nil {
			err = t.copy(ctx, out, content, f.Name, f.Size, sum)
		}
		if err = errors.Join(err, closeContent(content)); err != nil {
			return nil, fmt.Errorf("back up %s: %w", f.Name, err)
		}
		m.Files = append(m.Files, ManifestFile{Name: f.Name, Size: f.Size, Sum: hex64(sum)})
	}
	b, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if err := header(streamManifest, int64(len(b))); err != nil {
		return nil, err
	}
	if _, err := out.Write(b); err != nil {
		return nil, err
	}
	return m, out.Close()
}

// RestoreStream is Directory.Restore for a stream. What the stream holds is known at its
// end: plan is called then, unless it is nil, and says how to extend the log. Progress does
// not know the total.
//
// Errors: a *kv.CorruptionError also if the stream was cut short.
func RestoreStream(ctx context.Context, in io.Reader, plan func(*Manifest) (*Replay, error), fsys vfs.FS, target string, o Options) (*Manifest, error) {
	r, err := beginRestore(fsys, target)
	if err != nil {
		return nil, err
	}
	t := newTransfer(o, 0)
	m, err := readStream(in, func(name string, size int64, content func(io.Writer) error) error {
		return r.add(ctx, t, name, size, content)
	}, t, ctx)
	var replay *Replay
	if err == nil && plan != nil {
		replay, err = plan(m)
	}
	if err == nil {
		err = r.end(ctx, t, m, replay)
	}
	return m, r.ended(err)
}

// VerifyStream reads a stream and compares every checksum.
func VerifyStream(ctx context.Context, in io.Reader, o Options) (*Manifest, error) {
	return readStream(in, func(_ string, _ int64, content func(io.Writer) error) error {
		return content(io.Discard)
	}, newTransfer(o, 0), ctx)
}

// readStream calls add for each file of a stream, and compares what it wrote with the
// manifest at the end.
func readStream(in io.Reader, add func(name string, size int64, content func(io.Writer) error) error, t *transfer, ctx context.Context) (*Manifest, error) {
	read := map[string]ManifestFile{}
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		if err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("read the stream: %w", ctx.Err()) // whatever has come is no damage
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, kv.Corruptf("stream", -1, "the backup is not whole: it ends before its manifest")
		}
		if err != nil {
			return nil, kv.Corruptf("stream", -1, "it is not a backup, or is damaged: %v", err)
		}
		if h.Name == streamManifest {
			m, err := endStream(archive, h.Size, read)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("read the stream: %w", ctx.Err())
			}
			return m, err
		}
		if _, twice := read[h.Name]; twice || h.Typeflag != tar.TypeReg {
			return nil, kv.Corruptf("stream", -1, "%q is there twice, or is not a file", h.Name)
		}
		if err := checkName(h.Name); err != nil {
			return nil, err
		}
		var sum uint64
		err = add(h.Name, h.Size, func(w io.Writer) (err error) {
			_, sum, err = t.move(ctx, w, archive, h.Size)
			var unread *readError
			switch {
			case errors.As(err, &unread) && errors.Is(err, io.ErrUnexpectedEOF):
				return kv.Corruptf("stream", -1, "the backup is not whole: it ends in the middle of %s", h.Name)
			case errors.As(err, &unread):
				return fmt.Errorf("read the stream: %w", unread.err)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		read[h.Name] = ManifestFile{Name: h.Name, Size: h.Size, Sum: hex64(sum)}
	}
}

// endStream reads the manifest of a stream and compares it with what was read.
func endStream(archive io.Reader, size int64, read map[string]ManifestFile) (*Manifest, error) {
	if size > maxManifest {
		return nil, kv.Corruptf(streamManifest, -1, "%d bytes, want at most %d", size, maxManifest)
	}
	b, err := io.ReadAll(archive)
	if err != nil {
		return nil, kv.Corruptf("stream", -1, "the backup is not whole: it ends in the middle of its manifest: %v", err)
	}
	m, err := Decode(streamManifest, b)
	if err != nil {
		return nil, err
	}
	for i := range m.Files {
		f := &m.Files[i]
		switch has, ok := read[f.Name]; {
		case !ok:
			return nil, kv.Corruptf(f.Name, -1, "the stream does not hold this file, which its manifest names")
		case has != *f:
			return nil, kv.Corruptf(f.Name, -1, "it has %d bytes with the checksum %016x, and was written with %d and %016x",
				has.Size, uint64(has.Sum), f.Size, uint64(f.Sum))
		}
	}
	if len(read) != len(m.Files) {
		return nil, kv.Corruptf("stream", -1, "it holds %d files, its manifest names %d", len(read), len(m.Files))
	}
	return m, nil
}
