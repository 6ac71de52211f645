package process

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// OwnCPU returns the CPU time of this process so far, user and system, all threads;
// zero if the kernel does not report it.
func OwnCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// CPU returns the CPU time of any process, to within a tick of 10 ms. See
// proc_pid_stat(5).
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const userTime, tick = 11, 10 * time.Millisecond // after the name, which may have spaces; USER_HZ is 100
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < userTime+2 {
		return 0, fmt.Errorf("process %d: %q is no status", pid, text)
	}
	var ticks int64
	for _, field := range fields[userTime : userTime+2] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// ForgetPeak resets the peak of a process's memory (VmHWM). See proc_pid_clear_refs(5).
func ForgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// Settle returns when the processes have been idle for a while, or after a time limit.
func Settle(ctx context.Context, pids ...int) error {
	const step, most, quiet = 250 * time.Millisecond, 60, 3
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	var before time.Duration
	for idle, n := 0, 0; idle < quiet && n < most; n++ {
		var now time.Duration
		for _, pid := range pids {
			used, err := CPU(pid)
			if err != nil {
				return err
			}
			now += used
		}
		if idle++; now-before > step/20 {
			idle = 0
		}
		before = now
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
