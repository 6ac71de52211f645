package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// filling is what a process that fills a store is told.
type filling struct {
	Dir     string
	Target  fillOptions
	Config  workload.Config // sizes of keys and values
	Keys    uint64
	LogKeys uint64 // to put again after all were flushed
}

// fillOptions are the options of the store.
type fillOptions struct {
	Durability    kv.Durability
	Partitions    int
	Memory        int64
	MemtableBytes int64
	SegmentBytes  int64
}

func fillTarget(o *targetOptions) fillOptions {
	return fillOptions{Durability: o.level, Partitions: o.partitions, Memory: int64(o.memory), MemtableBytes: o.memtableBytes, SegmentBytes: o.segmentBytes}
}

const (
	fillCommand = "fill"
	// filled is what the process writes once the store may be killed.
	filled = "filled"
	// childVariable is set in the environment of such a process, for tests: their binary
	// must know that it is one.
	childVariable = "KVBENCH_CHILD"
	// childPatience is how long a process that was killed may keep its output open.
	childPatience = 30 * time.Second
)

// fillAndKill runs a process that fills a new store, tells its progress, and kills it. It
// returns the directory of the store, also with an error unless there is none.
func fillAndKill(ctx context.Context, f *filling, told func(loadgen.Progress)) (dir string, err error) {
	if dir, err = stores.make(); err != nil {
		return "", err
	}
	program, err := os.Executable()
	if err != nil {
		return dir, err
	}
	f.Dir = dir
	task, err := json.Marshal(f)
	if err != nil {
		return dir, err
	}
	var stderr bytes.Buffer
	c := exec.CommandContext(ctx, program, fillCommand)
	c.Env = append(os.Environ(), childVariable+"=1")
	c.Stderr, c.WaitDelay = &stderr, childPatience
	stdin, err := c.StdinPipe() // stays open until the process is killed
	if err != nil {
		return dir, err
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		return dir, err
	}
	if err := c.Start(); err != nil {
		return dir, fmt.Errorf("start a process that fills a store: %w", err)
	}
	_, writeErr := stdin.Write(append(task, '\n'))
	line, readErr := awaitFilled(stdout, told)
	killErr := c.Process.Kill()
	waitErr := c.Wait()
	if line == filled+"\n" {
		return dir, killErr // the process ended as it should, by the signal
	}
	if err := ctx.Err(); err != nil {
		return dir, err
	}
	return dir, fmt.Errorf("a process that fills a store failed: %w: %s", errors.Join(writeErr, readErr, waitErr), bytes.TrimSpace(stderr.Bytes()))
}

// awaitFilled returns the line with which a process that fills a store says that it is done, or
// another one that says something else. Before that it tells the progress.
func awaitFilled(out io.Reader, told func(loadgen.Progress)) (line string, err error) {
	lines := bufio.NewReader(out)
	for {
		line, err = lines.ReadString('\n')
		var p loadgen.Progress
		if err != nil || json.Unmarshal([]byte(line), &p) != nil {
			return line, err
		}
		told(p)
	}
}

// newFillCommand is the process of fillAndKill.
func newFillCommand() *cobra.Command {
	return &cobra.Command{
		Use: fillCommand, Hidden: true, Args: cobra.NoArgs,
		Short: "Fill a store as standard input says, and wait to be killed",
		RunE: func(c *cobra.Command, _ []string) error {
			return failed(fill(c.Context(), c.InOrStdin(), c.OutOrStdout()))
		},
	}
}

func fill(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read what to fill: %w", err)
	}
	var f filling
	if err := json.Unmarshal(line, &f); err != nil {
		return fmt.Errorf("read what to fill: %w", err)
	}
	target, _, err := openEngine(&targetOptions{
		data: f.Dir, level: f.Target.Durability, partitions: f.Target.Partitions, memory: byteSize(f.Target.Memory), memtableBytes: f.Target.MemtableBytes, segmentBytes: f.Target.SegmentBytes,
	})
	if err != nil {
		return err
	}
	progress := json.NewEncoder(out)
	err = f.put(ctx, target.(*engineTarget), func(p loadgen.Progress) {
		_ = progress.Encode(p) // if the parent has ended, the end of standard input says so
	})
	if err == nil {
		_, err = fmt.Fprintln(out, filled)
	}
	if err == nil {
		_, err = lines.ReadByte() // the parent kills this process, or has ended itself
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	return errors.Join(err, target.Close())
}

// put fills the store: tables with all keys, and the log with some of them.
func (f *filling) put(ctx context.Context, target *engineTarget, told func(loadgen.Progress)) error {
	config := f.Config
	config.Keys = f.Keys
	if err := workload.Load(ctx, target, &config, config.Seed, loadgen.Counted("filling tables", "keys", told)); err != nil {
		return err
	}
	if err := loadgen.Watch("waiting for flushes and compactions", told, func() error { return target.settle(ctx) }); err != nil {
		return err
	}
	live := func() int64 { return target.engine.Stats().Log.LiveBytes }
	trim := func() error { return awaitTrim(ctx, live, keptSegments*f.Target.SegmentBytes) }
	if err := loadgen.Watch("waiting until the log is trimmed", told, trim); err != nil || f.LogKeys == 0 {
		return err
	}
	config.Keys = f.LogKeys
	return workload.Load(ctx, target, &config, config.Seed+1, loadgen.Counted("filling the log", "keys", told))
}

// The log keeps a few segments for its request ids, of the last 30 seconds.
const (
	keptSegments = 4
	trimPatience = 2 * time.Minute
	trimPoll     = 20 * time.Millisecond
)

// awaitTrim waits until the log, of which live returns the bytes, has dropped the segments of
// what was flushed. Otherwise the next start would replay what a store that is killed at
// another time has dropped, so it fails if the log keeps more than most.
func awaitTrim(ctx context.Context, live func() int64, most int64) error {
	for deadline := time.Now().Add(trimPatience); live() > most; {
		if time.Now().After(deadline) {
			return fmt.Errorf("the log still has %s, %v after everything was flushed, and should have %s at most: a start would replay more than the experiment asks for",
				bytesText(live()), trimPatience, bytesText(most))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(trimPoll):
		}
	}
	return nil
}
