package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/bench/process"
	"github.com/kvd-db/kvd/bench/service/client"
	"github.com/kvd-db/kvd/bench/service/load"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// assignment is the input of a client process: one of Fill, Load and Hold.
type assignment struct {
	Client  string         `json:"client"`
	Options client.Options `json:"options"`
	// Clients is the number of clients that share the callers.
	Clients int `json:"clients"`
	// ServerPIDs are the processes whose processor time and memory are measured.
	ServerPIDs []int `json:"serverPIDs,omitempty"`

	Fill *filling     `json:"fill,omitempty"`
	Load *load.Closed `json:"load,omitempty"`
	// Overload is the duration of an overload after the load, at a multiple of its
	// rate; 0: none.
	Overload time.Duration `json:"overload,omitempty"`
	Hold     int           `json:"hold,omitempty"` // number of connections to hold until the next object arrives
}

// filling puts every key once.
type filling struct {
	Keys       uint64 `json:"keys"`
	ValueBytes int    `json:"valueBytes"`
	Callers    int    `json:"callers"`
	// Elects says that the server takes no writes until its nodes have chosen a leader.
	Elects bool `json:"elects,omitempty"`
}

// electTime is how long a cluster may take to choose a leader.
const electTime = 20 * time.Second

// await waits until the server takes writes.
func (f *filling) await(ctx context.Context, t load.Target) (err error) {
	for begun := time.Now(); time.Since(begun) < electTime; {
		if err = load.Fill(ctx, t, 1, f.ValueBytes, 1); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("after %v: %w", electTime, err)
}

// answer is the output of a client process.
type answer struct {
	Outcome *outcome `json:"outcome,omitempty"`
	Held    *int     `json:"held,omitempty"`
	Error   string   `json:"error,omitempty"`
}

func newWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Be the clients that standard input says",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			in, out := json.NewDecoder(c.InOrStdin()), json.NewEncoder(c.OutOrStdout())
			if err := work(c.Context(), in, out); err != nil {
				return out.Encode(answer{Error: err.Error()}) // the parent process reports it
			}
			return nil
		},
	}
}

func newEchoCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "echo-server",
		Short:  "Answer gRPC calls with what they send",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "READY listen=%s\n", l.Addr())
			context.AfterFunc(c.Context(), func() { _ = l.Close() }) // which ends Serve
			if err := client.ServeEcho(l); !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		},
	}
}

// work runs one assignment.
func work(ctx context.Context, in *json.Decoder, out *json.Encoder) (err error) {
	var a assignment
	if err := in.Decode(&a); err != nil {
		return err
	}
	if a.Hold > 0 {
		return hold(ctx, &a, in, out)
	}
	var cost time.Duration
	if a.Load != nil {
		if cost, err = load.Cost(ctx, *a.Load); err != nil {
			return err
		}
	}
	clients, err := client.OpenAll(a.Client, a.Options, max(a.Clients, 1))
	defer func() {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
	}()
	if err != nil {
		return err
	}
	targets := client.Targets(clients)
	if f := a.Fill; f != nil {
		if f.Elects {
			if err := f.await(ctx, targets[0]); err != nil {
				return err
			}
		}
		if err := load.Fill(ctx, targets[0], f.Keys, f.ValueBytes, f.Callers); err != nil {
			return err
		}
		return out.Encode(answer{Outcome: new(outcome)})
	}
	o, err := measure(ctx, &a, targets)
	if err != nil {
		return err
	}
	o.Generator = cost
	return out.Encode(answer{Outcome: o})
}

// measure runs a load, and perhaps an overload after it, and measures both processes.
func measure(ctx context.Context, a *assignment, targets []load.Target) (*outcome, error) {
	var o outcome
	var failed error
	ran, err := a.Load.Run(ctx, targets, func(begins bool) {
		sign := time.Duration(1)
		if begins {
			sign = -1
			failed = errors.Join(failed, a.forgetPeak())
		}
		o.ClientCPU += sign * process.OwnCPU()
		used, err := a.serverCPU()
		o.ServerCPU += sign * used
		failed = errors.Join(failed, err)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	o.Outcome = *ran
	if a.Overload > 0 {
		open := overload(a.Load, ran.OpsPerSecond(), a.Overload)
		if err := a.forgetPeak(); err != nil {
			return nil, err
		}
		if o.Overload, err = open.Run(ctx, targets, func(err error) bool { return errors.Is(err, kvd.ErrOverloaded) }); err != nil {
			return nil, err
		}
	}
	for _, id := range a.ServerPIDs {
		pid := strconv.Itoa(id)
		o.ServerBytes += process.StatusBytes(pid, "VmRSS:")
		o.ServerPeakBytes += process.StatusBytes(pid, "VmHWM:")
	}
	return &o, nil
}

func (a *assignment) serverCPU() (all time.Duration, err error) {
	for _, pid := range a.ServerPIDs {
		used, e := process.CPU(pid)
		all, err = all+used, errors.Join(err, e)
	}
	return all, err
}

func (a *assignment) forgetPeak() (err error) {
	for _, pid := range a.ServerPIDs {
		err = errors.Join(err, process.ForgetPeak(pid))
	}
	return err
}

// hold holds connections until it is told to count them.
func hold(ctx context.Context, a *assignment, in *json.Decoder, out *json.Encoder) (err error) {
	h, err := client.Hold(ctx, a.Options.Address, a.Hold)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := out.Encode(answer{Held: &a.Hold}); err != nil {
		return err
	}
	var count struct{}
	if err := in.Decode(&count); err != nil {
		return err
	}
	n, err := h.Count(ctx)
	if err != nil {
		return err
	}
	return out.Encode(answer{Held: &n})
}
