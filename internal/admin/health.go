package admin

import (
	"fmt"
	"net/http"
)

// serveAlive answers 200 unless a restart would help.
func (s *Source) serveAlive(w http.ResponseWriter, _ *http.Request) {
	if err := s.Alive(); err != nil {
		plain(w, http.StatusServiceUnavailable)
		fmt.Fprintf(w, "failed: %v\n", err)
		return
	}
	plain(w, http.StatusOK)
	fmt.Fprintln(w, "ok")
}

// serveReady answers 200 if every check holds. It names those that do not, and
// with ?verbose all of them.
func (s *Source) serveReady(w http.ResponseWriter, r *http.Request) {
	verbose := r.URL.Query().Has("verbose")
	checks := s.Checks()
	status := http.StatusOK
	for _, c := range checks {
		if c.Err != nil {
			status = http.StatusServiceUnavailable
		}
	}
	plain(w, status)
	for _, c := range checks {
		switch {
		case c.Err != nil:
			fmt.Fprintf(w, "[-] %s: %v\n", c.Name, c.Err)
		case verbose && c.Note != "":
			fmt.Fprintf(w, "[+] %s: %s\n", c.Name, c.Note)
		case verbose:
			fmt.Fprintf(w, "[+] %s\n", c.Name)
		}
	}
	if status == http.StatusOK {
		fmt.Fprintln(w, "ready")
	} else {
		fmt.Fprintln(w, "not ready")
	}
}
