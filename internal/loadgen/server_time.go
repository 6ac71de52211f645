package loadgen

import "time"

// ServerTime is the processor time that a server in another process had used at one time.
type ServerTime struct {
	Used       time.Duration // of all its threads, since it started
	Processors float64       // that it may use at a time
}

// ServerUse is what a measurement took of the processors of a server in another process.
type ServerUse struct {
	Processors     float64 `json:"processors"` // that the server may use at a time
	Share          float64 `json:"share"`      // of these
	CPUMicrosPerOp float64 `json:"cpuMicrosPerOp"`
	// Unknown says why nothing is known; the rest is then 0.
	Unknown string `json:"unknown,omitempty"`
}

// serverWatch follows the processor time of a server during a run. Times are those of the
// readings, which take a while to arrive.
type serverWatch struct {
	first, last serverReading
	err         error // the first one
}

// serverReading is a ServerTime and when it was read.
type serverReading struct {
	ServerTime
	at int64
}

// begin forgets what was read before the measurement.
func (w *serverWatch) begin(read func() (ServerTime, error), clock Clock) {
	w.last = serverReading{}
	w.second(read, clock)
	w.first = w.last
}

// second reads the time, and returns the share of the processors since the last reading; nil
// if it is not known.
func (w *serverWatch) second(read func() (ServerTime, error), clock Clock) *float64 {
	if read == nil || w.err != nil {
		return nil
	}
	t, err := read()
	if err != nil {
		w.err = err
		return nil
	}
	before := w.last
	w.last = serverReading{t, clock.Now()}
	return w.last.since(&before)
}

// since returns the share of the processors that the server had since another reading; nil if
// there was none, or another process answered then.
func (r *serverReading) since(before *serverReading) *float64 {
	elapsed := float64(r.at - before.at)
	if before.Processors == 0 || r.Processors == 0 || elapsed <= 0 || r.Used < before.Used {
		return nil
	}
	share := min(float64(r.Used-before.Used)/(elapsed*r.Processors), 1)
	return &share
}

// use returns what a measurement of this length and so many operations took; nil if nothing
// was read.
func (w *serverWatch) use(elapsed time.Duration, ops uint64) *ServerUse {
	switch share := w.last.since(&w.first); {
	case w.err != nil:
		return &ServerUse{Unknown: w.err.Error()}
	case w.last.Processors == 0:
		return nil
	case share == nil:
		return &ServerUse{Unknown: "the server was restarted during the measurement"}
	default:
		u := &ServerUse{Processors: w.last.Processors, Share: *share}
		if ops > 0 {
			u.CPUMicrosPerOp = *share * u.Processors * float64(elapsed.Microseconds()) / float64(ops)
		}
		return u
	}
}
