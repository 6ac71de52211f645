package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// maxLine bounds a line of input: the largest item, each byte of which JSON may spell with six, as
// \u0000, with room for the names around it. An export writes such an item in base64, an older one did
// not.
const maxLine = (kv.MaxValueBytes+kv.MaxKeyBytes)*6 + 4096

func (a *app) importCommand() *cobra.Command {
	var level durability
	var inFlight int
	var resume string
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Put the keys and values of JSON lines into the store",
		Long: "Read JSON lines, as kvd export writes them, from a file or standard input, and\n" +
			"put their keys and values into the store. If several lines have the same key, the\n" +
			"last one counts. A key with ttl_ms expires that many milliseconds after it is\n" +
			"written.\n\n" +
			"An invalid line ends the import with its number; all lines before it are\n" +
			"imported. An import can be repeated without harm. With --resume FILE the number\n" +
			"of leading lines that are durable is kept in FILE with their checksum, and an\n" +
			"interrupted import continues after them; it is refused if the input does not\n" +
			"begin with those lines, or FILE is about an import that is complete.",
		Args: mayHave("FILE"),
	}
	server := a.connection(cmd)
	level.flag(cmd)
	cmd.Flags().IntVar(&inFlight, "in-flight", 256, "number of concurrent writes")
	cmd.Flags().StringVar(&resume, "resume", "", "file that records the progress of the import; requires durability sync")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case inFlight < 1 || inFlight > 4096:
			return usagef("--in-flight %d; want 1 to 4096", inFlight)
		case resume != "" && level.level != kvd.Default && level.level != kvd.Sync:
			return usagef("--resume records what is durable, so it requires --durability sync")
		case resume != "":
			level.level = kvd.Sync
		}
		source, err := a.openSource(args)
		if err != nil {
			return err
		}
		defer source.close()
		state, err := loadResume(resume, source.name)
		if err != nil {
			return err
		}
		return server.with(func(c *kvd.Client) error {
			progress := startProgress(a.err, "lines", source.size)
			job := &importJob{
				client: c, durability: level.level, progress: progress, state: state,
				lanes: make([]chan numbered, inFlight), done: newWatermark(state.Lines),
			}
			err := job.run(cmd.Context(), source.r)
			progress.close()
			if err != nil {
				return fmt.Errorf("import %s: %w", source.name, err)
			}
			fmt.Fprintf(a.err, "imported %s\n", progress.text(time.Since(progress.begin)))
			return nil
		})
	}
	return cmd
}

// source is the input of an import.
type source struct {
	name  string
	r     io.Reader
	size  int64 // 0: not known
	close func()
}

func (a *app) openSource(args []string) (*source, error) {
	if len(args) == 0 || args[0] == "-" {
		return &source{name: "standard input", r: a.in, close: func() {}}, nil
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, usagef("%w", err)
	}
	s := &source{name: args[0], r: f, close: func() { _ = f.Close() }} // only read
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		s.size = info.Size()
	}
	return s, nil
}

var newline = []byte{'\n'}

// importJob reads lines and writes their items. Lines with the same key go
// through the same lane, one after the other, so that the last one wins.
type importJob struct {
	client     *kvd.Client
	durability kvd.Durability
	progress   *progress
	state      *resumeState
	lanes      []chan numbered
	done       *watermark
}

// numbered is an item and the position after its line.
type numbered struct {
	end  position
	line line
}

func (j *importJob) run(ctx context.Context, r io.Reader) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var lanes sync.WaitGroup
	for i := range j.lanes {
		j.lanes[i] = make(chan numbered, 4)
		lanes.Go(func() { j.writeLane(ctx, stop, j.lanes[i]) })
	}
	saver := j.state.keep(j.done)
	readErr := j.read(ctx, until(ctx, r))
	for _, lane := range j.lanes {
		close(lane)
	}
	lanes.Wait()
	// The error of a lane comes first: reading stops because of it.
	err := errors.Join(context.Cause(ctx), readErr)
	return errors.Join(err, saver.close(err == nil))
}

// read hands the lines to lanes, without those that an earlier import has completed. It fails, and
// hands over none, if the input does not begin with those.
func (j *importJob) read(ctx context.Context, r io.Reader) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 64<<10), maxLine)
	skip := j.done.reached().lines
	number := int64(0)
	sums := xxhash.New()
	if skip == 0 {
		j.done.begin(sums.Sum64())
	}
	for scanner.Scan() && ctx.Err() == nil {
		number++
		text := scanner.Bytes()
		j.progress.done.Add(int64(len(text)) + 1)
		_, _ = sums.Write(text) // never fails
		_, _ = sums.Write(newline)
		if number < skip {
			continue
		}
		end := position{number, sums.Sum64()}
		if number == skip {
			if err := j.state.check(end.sum); err != nil {
				return err
			}
			j.done.begin(end.sum)
			continue
		}
		if len(text) == 0 {
			j.done.finish(end)
			continue
		}
		l, err := parseLine(text)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, usagef("%w", err))
		}
		lane := j.lanes[xxhash.Sum64(l.Key)%uint64(len(j.lanes))]
		select {
		case lane <- numbered{end, l}:
		case <-ctx.Done():
			return nil
		}
	}
	if err := scanner.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("after line %d: %w", number, err)
	}
	if number < skip && ctx.Err() == nil {
		return j.state.otherInput(fmt.Sprintf("ends after line %d", number))
	}
	return nil
}

// writeLane writes the items of a lane one after the other. After an error in any lane it
// starts no more writes.
func (j *importJob) writeLane(ctx context.Context, stop context.CancelCauseFunc, lane <-chan numbered) {
	for item := range lane {
		if ctx.Err() != nil {
			continue
		}
		options := []kvd.WriteOption{kvd.Durable(j.durability)}
		if item.line.TTL > 0 {
			options = append(options, kvd.TTL(item.line.TTL))
		}
		err := j.client.Put(ctx, item.line.Key, item.line.Value, options...)
		if err != nil {
			stop(fmt.Errorf("line %d: %w", item.end.lines, err))
			continue
		}
		j.done.finish(item.end)
		j.progress.items.Add(1)
	}
}
