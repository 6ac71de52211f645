package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxBodyBytes bounds what a request brings: only pprof/symbol takes anything, addresses.
const maxBodyBytes = 64 << 10

// Handler returns the pages of s, which g protects; nil: every client sees all. It starts
// nothing and holds nothing open.
func Handler(s *Source, g *Guard) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.serveAlive)
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.HandleFunc("GET /{$}", serveIndex)
	mux.Handle("GET /status.txt", g.protect(monitor, http.HandlerFunc(s.serveStatus)))
	mux.Handle("GET /metrics", g.protect(monitor, promhttp.HandlerFor(Registry(s), promhttp.HandlerOpts{})))
	for name, page := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.Handle("/debug/pprof/"+name, g.protect(administer, page))
	}
	return http.MaxBytesHandler(mux, maxBodyBytes)
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
