package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// liveSettings are the settings as flags, variables and the configuration file gave them.
// Those that are live change while the service runs: with the file, and by setSetting.
type liveSettings struct {
	mu    sync.Mutex
	asked Config

	// The configuration file: how often it could not be used, and whether it cannot be now.
	failures atomic.Uint64
	failing  atomic.Bool
}

// failed notes that the configuration file, or a part of it, could not be used.
func (l *liveSettings) failed() {
	l.failures.Add(1)
	l.failing.Store(true)
}

// grace returns the setting as it is now.
func (l *liveSettings) grace() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked.Grace
}

// setSetting changes a setting of the running service, and returns its values before and
// after. by is the client that asks, for the log. The configuration file stays as it is, so a
// change lasts until the file is read again, or the process ends.
func (s *process) setSetting(by, name, text string) (before, after string, err error) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	next := s.live.asked
	settings := next.Settings()
	i := slices.IndexFunc(settings, func(o *Setting) bool { return o.Name == name })
	switch {
	case i < 0:
		return "", "", fmt.Errorf("%q is not a setting%s", name, didYouMean(name, names(settings)))
	case !settings[i].Live:
		return "", "", fmt.Errorf("%s changes only with a restart; these change while the server runs: %s", name, strings.Join(liveNames(settings), ", "))
	}
	before = settings[i].String()
	if err := settings[i].value.Set(text); err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	if err := next.Check(); err != nil {
		return "", "", errors.New(strings.TrimPrefix(err.Error(), ErrUsage.Error()+": "))
	}
	after = settings[i].String()
	s.live.asked = next
	if before != after {
		s.log.Info("config set", zap.String("setting", name), zap.String("from", before), zap.String("to", after), zap.String("by", by))
	}
	s.applyLiveLocked()
	return before, after, nil
}

func liveNames(settings []*Setting) (list []string) {
	for _, s := range settings {
		if s.Live {
			list = append(list, s.Name)
		}
	}
	return list
}

// reread reads the configuration file again. It applies what may change while the service
// runs, and tells what needs a restart. If anything in the file is invalid, all stays.
func (s *process) reread() {
	next, err := s.config.Reread()
	if err == nil {
		err = next.Check()
	}
	if err != nil {
		s.log.Error("SIGHUP: the configuration cannot be used; all settings stay as they are", zap.Error(err))
		s.live.failed()
		return
	}
	s.live.failing.Store(false)
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	was, now := s.live.asked.Settings(), next.Settings()
	for i, setting := range was {
		before, after := setting.String(), now[i].String()
		fields := []zap.Field{zap.String("setting", setting.Name), zap.String("from", before), zap.String("to", after)}
		if before == after {
			continue
		}
		if !setting.Live {
			s.log.Warn("SIGHUP: this setting needs a restart", fields...)
			continue
		}
		if err := setting.value.Set(after); err != nil {
			s.log.Error("SIGHUP: a setting stays as it is", append(fields, zap.Error(err))...)
			s.live.failed()
			continue
		}
		s.log.Info("SIGHUP: a setting changed", fields...)
	}
	s.applyLiveLocked()
}

// applyLive gives the live settings to what uses them.
func (s *process) applyLive() {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	s.applyLiveLocked()
}

// applyLiveLocked does not apply the grace period, which is read when the service ends.
func (s *process) applyLiveLocked() {
	c := &s.live.asked
	if level, err := zapcore.ParseLevel(c.LogLevel); err == nil && c.level != nil {
		c.level.SetLevel(level)
	}
	s.disk.setLimit(c.MaxSync)
	if srv := s.server.Load(); srv != nil {
		srv.SetSlowLog(c.SlowTime, c.SlowHide)
		srv.SetMaxDeadline(c.MaxCall)
	}
}
