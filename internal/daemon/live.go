package daemon

import (
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// liveSettings are the settings as flags, variables and the configuration file gave them.
// Those that are live follow the file.
type liveSettings struct {
	mu    sync.Mutex
	asked Config
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
		return
	}
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
			s.log.Warn("SIGHUP: this setting changes only with a restart", fields...)
			continue
		}
		if err := setting.value.Set(after); err != nil {
			s.log.Error("SIGHUP: a setting stays as it is", append(fields, zap.Error(err))...)
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

func (s *process) applyLiveLocked() {
	c := &s.live.asked
	if level, err := zapcore.ParseLevel(c.LogLevel); err == nil && c.level != nil {
		c.level.SetLevel(level)
	}
	if srv := s.server.Load(); srv != nil {
		srv.SetSlowLog(c.SlowTime, c.SlowHide)
	}
}
