package daemon

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Supervisor is the process that started the service and is told its state, as
// sd_notify(3) defines.
type Supervisor struct {
	// Send sends one notification; nil: there is no supervisor. It may block.
	Send func(state string) error
	// Watchdog is the time without a notification after which the supervisor ends the
	// process; 0: never.
	Watchdog time.Duration
}

// SupervisorFromEnv returns the supervisor that NOTIFY_SOCKET, WATCHDOG_USEC and
// WATCHDOG_PID name; the zero Supervisor if there is none.
func SupervisorFromEnv() (Supervisor, error) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return Supervisor{}, nil
	}
	watchdog, err := watchdogFromEnv(os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID"))
	return Supervisor{Send: func(state string) error { return notifySocket(socket, state) }, Watchdog: watchdog}, err
}

// notifySocket sends a datagram to a unix socket; a name that begins with @ is in the abstract
// namespace.
func notifySocket(name, state string) error {
	conn, err := net.Dial("unixgram", name) // #nosec G704 -- the supervisor that started the process names it
	if err != nil {
		return err
	}
	_, err = io.WriteString(conn, state)
	return errors.Join(err, conn.Close())
}

// watchdogFromEnv returns the time that WATCHDOG_USEC gives, unless WATCHDOG_PID names another
// process.
func watchdogFromEnv(micros, pid string) (time.Duration, error) {
	if micros == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0, nil
	}
	n, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/int64(time.Microsecond) {
		return 0, fmt.Errorf("%w: WATCHDOG_USEC=%q is not a number of microseconds", ErrUsage, micros)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// phase is what a supervisor distinguishes in the life of a service.
type phase int

const (
	starting phase = iota
	serving
	stopping
)

const (
	// noticeInterval is how often the supervisor learns the state, at least.
	noticeInterval = 5 * time.Second
	// moreTime is how much time a notification asks for while the store is being opened, and
	// in addition to the grace period when the service stops.
	moreTime = 6 * noticeInterval
)

// notices computes what a supervisor is told.
type notices struct {
	watched bool
	phase   phase  // that the supervisor knows
	status  string // that the supervisor knows
}

// next returns the notification for a service in phase p; empty if there is nothing to
// tell. status is a line for people. alive is false if the store has failed for good. grace is
// the longest time of a stop.
func (n *notices) next(p phase, status string, alive bool, grace time.Duration) string {
	var lines []string
	switch {
	case p == starting && alive:
		// The recovery of a large log takes longer than any fixed time to start.
		lines = append(lines, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", moreTime.Microseconds()))
	case p == serving && n.phase != serving:
		lines = append(lines, "READY=1")
	case p == stopping && n.phase != stopping:
		lines = append(lines, "STOPPING=1", fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (grace+moreTime).Microseconds()))
	}
	n.phase = p
	if status != n.status {
		n.status = status
		lines = append(lines, "STATUS="+strings.ReplaceAll(status, "\n", " "))
	}
	if n.watched && alive {
		lines = append(lines, "WATCHDOG=1")
	}
	return strings.Join(lines, "\n")
}

// notify tells the supervisor the state of the service until ended is closed. It runs on a
// goroutine of its own, which a stop does not wait for: the supervisor may be slow to read.
//
// If no goroutine of the process runs any more, the watchdog of the supervisor ends the
// process. A disk that hangs is not its business: see diskWatch.
func (s *process) notify(ended <-chan struct{}) {
	to := s.config.Supervisor
	interval := noticeInterval
	if to.Watchdog > 0 {
		interval = min(interval, to.Watchdog/2)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	n := notices{watched: to.Watchdog > 0}
	for {
		if state := n.next(s.notice()); state != "" {
			if err := to.Send(state); err != nil {
				s.log.Warn("the supervisor was not told the state of the service", zap.String("state", state), zap.Error(err))
			}
		}
		select {
		case <-tick.C:
		case <-s.phased:
		case <-ended:
			return
		}
	}
}

// notice returns the arguments of notices.next.
func (s *process) notice() (p phase, status string, alive bool, grace time.Duration) {
	status = "serving clients at " + s.listen.Addr().String()
	switch p = serving; {
	case s.stopping.Load():
		p, status = stopping, "stopping"
	case s.server.Load() == nil:
		p, status = starting, "opening the store"
	}
	for _, c := range s.checks() {
		if c.Err != nil && p == serving {
			status = fmt.Sprintf("not ready: %s: %v", c.Name, c.Err)
			break
		}
	}
	return p, status, s.alive() == nil, max(s.live.grace(), minGrace)
}

// enterPhase has the supervisor told at once that the service serves, or stops.
func (s *process) enterPhase() {
	select {
	case s.phased <- struct{}{}:
	default: // it will see the newest phase
	}
}
