package daemon

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLog returns a logger of the configured level and format that writes to w. The level
// follows the setting while the service runs.
//
// Of lines with the same text within a second it writes the first ten, and then one in a
// hundred, so that a flood of one message neither fills the disk nor hides others.
func (c *Config) NewLog(w zapcore.WriteSyncer) *zap.Logger {
	level, err := zapcore.ParseLevel(c.LogLevel)
	if err != nil {
		level = zapcore.InfoLevel
	}
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.ISO8601TimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewConsoleEncoder(encoding)
	if c.LogFormat == "json" {
		encoder = zapcore.NewJSONEncoder(encoding)
	}
	live := zap.NewAtomicLevelAt(level)
	c.level = &live
	core := zapcore.NewCore(encoder, zapcore.Lock(w), live)
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 10, 100))
}
