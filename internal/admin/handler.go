package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler returns the pages of s. It starts nothing and holds nothing open.
func Handler(s *Source) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.serveAlive)
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.HandleFunc("GET /status.txt", s.serveStatus)
	mux.Handle("GET /metrics", promhttp.HandlerFor(Registry(s), promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /{$}", serveIndex)
	return mux
}

// Registry returns a registry with all metrics of s and of the Go runtime. It
// shares nothing with the global one.
func Registry(s *Source) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(
		&collector{s},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// Index is the page at /, by which a client knows an admin address.
const Index = `kvd

/livez           the process works
/readyz          it takes requests; ?verbose says why not
/metrics         for Prometheus
/status.txt      the same for people
/debug/pprof/    profiles
`

func serveIndex(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK)
	fmt.Fprint(w, Index)
}

func plain(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
}
