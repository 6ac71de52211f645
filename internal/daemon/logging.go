package daemon

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLog returns a logger of the configured level and format that writes to w, which may be a
// terminal. The level follows the setting while the service runs.
//
// Of lines with the same text within a second it writes the first ten, and then one in a
// hundred, so that a flood of one message neither fills the disk nor hides others.
func (c *Config) NewLog(w zapcore.WriteSyncer, terminal bool) *zap.Logger {
	level, err := zapcore.ParseLevel(c.LogLevel)
	if err != nil {
		level = zapcore.InfoLevel
	}
	encoder := consoleEncoder()
	if c.LogFormat == "json" || c.LogFormat == "auto" && !terminal {
		encoding := zap.NewProductionEncoderConfig()
		encoding.EncodeTime = zapcore.ISO8601TimeEncoder
		encoding.EncodeDuration = zapcore.StringDurationEncoder
		encoder = zapcore.NewJSONEncoder(encoding)
	}
	live := zap.NewAtomicLevelAt(level)
	c.level = &live
	core := zapcore.NewCore(encoder, zapcore.Lock(w), live)
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 10, 100))
}

// consoleEncoder returns an encoder of lines for people. The usual ones fit into 120 columns.
func consoleEncoder() zapcore.Encoder {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.TimeEncoderOfLayout("01-02 15:04:05")
	encoding.EncodeDuration = func(d time.Duration, to zapcore.PrimitiveArrayEncoder) { to.AppendString(roundTime(d).String()) }
	encoding.ConsoleSeparator = "  "
	return zapcore.NewConsoleEncoder(encoding)
}

// roundTime leaves a time three digits or more.
func roundTime(d time.Duration) time.Duration {
	for unit := time.Microsecond; unit <= time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}
