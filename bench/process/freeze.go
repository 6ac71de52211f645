package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Freeze stops all threads of a process, and returns when they are stopped. The signal alone stops
// none of them: one thread takes it when it is next scheduled, and then has the others stop.
//
// Errors: os.ErrProcessDone for a process that its parent has waited for, and that of a process that
// ends meanwhile.
func Freeze(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		stopped, err := allStopped(p.Pid)
		if err != nil || stopped {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// allStopped reports whether all threads of a process are stopped.
func allStopped(pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if os.IsNotExist(err) {
			continue // the thread has ended
		}
		if err != nil {
			return false, err
		}
		// The state follows the name, which is in parentheses and may have some itself.
		switch state := stat[bytes.LastIndexByte(stat, ')')+2]; state {
		case 'T':
		case 'Z', 'X':
			return false, fmt.Errorf("process %d has ended", pid)
		default:
			return false, nil
		}
	}
	if len(threads) == 0 {
		return false, fmt.Errorf("process %d has ended", pid)
	}
	return true, nil
}
