package main

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/results"
)

// reportUsage is the help of --report of commands that always write a report.
const reportUsage = "directory for the figures and the page, report.html; if it is not given and the default holds a report, -2, -3 and so on is appended"

// reportDirectory returns the directory of a report, given that of the flag --report. Only a
// directory that the command line names may hold an earlier report: hours of measurements must not
// be lost because a command is repeated. With resume it is the last one that holds a report.
func reportDirectory(c *cobra.Command, dir string, resume bool, holds func(string) bool) string {
	if c.Flags().Changed("report") {
		return dir
	}
	last, free := dir, dir
	for n := 2; holds(free); n++ {
		last, free = free, dir+"-"+strconv.Itoa(n)
	}
	if resume {
		return last
	}
	return free
}

// holdsReport reports whether a directory has a result.
func holdsReport(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, results.ResultFile))
	return err == nil
}

// holdsReports reports whether a directory has directories with results.
func holdsReports(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if holdsReport(filepath.Join(dir, e.Name())) {
			return true
		}
	}
	return false
}
