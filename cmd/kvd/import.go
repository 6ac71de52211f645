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

// maxLine bounds a line of input: the largest item in base64, with room for the
// names around it.
const maxLine = (kv.MaxValueBytes+kv.MaxKeyBytes)/3*4 + 4096

func (a *app) importCommand() *cobra.Command {
	var level durability
	var inFlight int
	var resume string
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Write the keys and values of JSON lines",
		Long: "Write the keys and values of JSON lines, as kvd export writes them, from a file\n" +
			"or standard input. Of several lines with one key the last one counts. A key with\n" +
			"ttl_ms expires so many milliseconds after it is written.\n\n" +
			"A line that is not understood ends the import with its number; what stands\n" +
			"before it is imported. To import again does no harm. With --resume FILE the\n" +
			"number of leading lines that are durable is kept in FILE, and an import that\n" +
			"was cut short goes on after them.",
		Args: mayHave("FILE"),
	}
	server := a.connection(cmd)
	level.flag(cmd)
	cmd.Flags().IntVar(&inFlight, "in-flight", 256, "how many writes are under way at once")
	cmd.Flags().StringVar(&resume, "resume", "", "file that remembers how far the import is; needs durability sync")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case inFlight < 1 || inFlight > 4096:
			return usagef("--in-flight %d; want 1 to 4096", inFlight)
		case resume != "" && level.level != kvd.Default && level.level != kvd.Sync:
			return usagef("--resume remembers what is durable, so it needs --durability sync")
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

// source is where lines come from.
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
	s := &source{name: args[0], r: f, close: func() { _ = f.Close() }} // it was only read
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		s.size = info.Size()
	}
	return s, nil
}

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

// numbered is an item and the number of its line.
type numbered struct {
	number int64
	line   line
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
	readErr := j.read(ctx, r)
	for _, lane := range j.lanes {
		close(lane)
	}
	lanes.Wait()
	// What a lane met comes first: reading stops because of it.
	return errors.Join(context.Cause(ctx), readErr, saver.close())
}

// read hands out the lines after those that are done already.
func (j *importJob) read(ctx context.Context, r io.Reader) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 64<<10), maxLine)
	skip := j.done.reached()
	number := int64(0)
	for scanner.Scan() && ctx.Err() == nil {
		number++
		text := scanner.Bytes()
		j.progress.done.Add(int64(len(text)) + 1)
		if number <= skip {
			continue
		}
		if len(text) == 0 {
			j.done.finish(number)
			continue
		}
		l, err := parseLine(text)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, usagef("%w", err))
		}
		lane := j.lanes[xxhash.Sum64(l.Key)%uint64(len(j.lanes))]
		select {
		case lane <- numbered{number, l}:
		case <-ctx.Done():
			return nil
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("after line %d: %w", number, err)
	}
	return nil
}

// writeLane writes items one after the other. After an error anywhere nothing
// more is begun.
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
			stop(fmt.Errorf("line %d: %w", item.number, err))
			continue
		}
		j.done.finish(item.number)
		j.progress.items.Add(1)
	}
}
