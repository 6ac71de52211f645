package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/workload"
)

// printSummary prints the table, other measurements, warnings, and a summary in one
// sentence.
func printSummary(out io.Writer, s *workload.Summary, info *targetInfo) error {
	var b bytes.Buffer
	printTable(&b, s)
	printFacts(&b, s, info)
	for _, w := range s.Warnings() {
		fmt.Fprintf(&b, "! %s\n", w)
	}
	fmt.Fprintf(&b, "\n%s\n", sentence(s, info))
	_, err := b.WriteTo(out)
	return err
}

func printTable(b *bytes.Buffer, s *workload.Summary) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "operation\tcount\tops/s\tmean\tp50\tp99\tp99.9\tmax\tfound\t")
	for _, row := range []struct {
		name  string
		kind  loadgen.Kind
		found string
	}{
		{"put", s.Put, "-"},
		{"delete", s.Delete, percent(s.Found.Delete)},
		{"get", s.Get, percent(&s.Found.Get)},
	} {
		l := row.kind.Nanos
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row.name,
			grouped(float64(row.kind.Count)), grouped(row.kind.OpsPerSecond), nanos(row.kind.MeanNanos),
			nanos(l.P50), nanos(l.P99), nanos(l.P999), nanos(l.Max), row.found)
	}
	_ = t.Flush() // into memory
}

// percent writes a share; "-" if it was not measured.
func percent(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100**share)
}

func printFacts(b *bytes.Buffer, s *workload.Summary, info *targetInfo) {
	fmt.Fprintf(b, "\nfound rate   nominal %s, known %s, found %s\n",
		percent(&s.Found.Nominal), percent(&s.Found.Known), percent(&s.Found.Get))
	fmt.Fprintf(b, "this process %.1f us of CPU an operation, %s at most; the generator %d ns (%s)\n",
		s.CPUMicrosPerOp, bytesText(s.PeakRSSBytes), s.Generator.NanosPerOp, percent(&s.Generator.Share))
	if info.Kind == kindServer {
		fmt.Fprintf(b, "server       %s\n", serverUse(s.Trial.Server))
	}
	if n := s.Generator.VerificationNanosPerOp; n > 0 {
		fmt.Fprintf(b, "verification %d ns an operation, %s of the CPU time of this process\n", n, percent(&s.Generator.VerificationShare))
	}
	if late := s.Trial.Late; late != nil {
		fmt.Fprintf(b, "open loop    %s operations/s due, %s arrivals; over 1 ms late: %s as all threads waited, %s as the generator woke late; %s refused, %s not begun at the end\n",
			grouped(float64(s.Trial.OfferedPerSecond)), s.Workload.Arrivals, grouped(float64(late.Busy)), grouped(float64(late.Woken)), grouped(float64(s.Refused)), grouped(float64(s.Missed.Count)))
	}
	if s.DataBytes != nil {
		fmt.Fprintf(b, "data         %s on %s\n", bytesText(*s.DataBytes), s.Environment.FileSystem)
	}
	if a := info.Activity; a != nil {
		fmt.Fprintf(b, "store        %.1f writes and %.1f reads a micro-batch, %.1f records a log write, %s syncs, %.1f bytes written for each byte put\n",
			a.OpsPerWriteBatch, a.OpsPerReadBatch, a.RecordsPerLogWrite, grouped(float64(a.LogSyncs)), a.WrittenPerUserBytes)
	}
	e := s.Environment
	fmt.Fprintf(b, "machine      %s, GOMAXPROCS %d, %s, %s, Linux %s\n",
		e.CPU, e.GOMAXPROCS, bytesText(e.MemoryBytes), e.Go, e.Kernel)
}

// serverUse says how much processor time the server used.
func serverUse(use *loadgen.ServerUse) string {
	switch {
	case use == nil:
		return "CPU time not known: name its admin address by --admin"
	case use.Unknown != "":
		return "CPU time not known: " + use.Unknown
	}
	return fmt.Sprintf("%.1f us of CPU an operation, %s of its %s", use.CPUMicrosPerOp, percent(&use.Share), report.Plural(int(use.Processors), "processor"))
}

// sentence sums up the run.
func sentence(s *workload.Summary, info *targetInfo) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s, %s: %s operations/s over %.1f s",
		s.Workload.Mix, info, report.Plural(s.Workload.Threads, "thread"), grouped(s.OpsPerSecond), s.Seconds)
	if s.SlowestSecond != nil && s.OpsPerSecond > 0 {
		fmt.Fprintf(&b, ", in the slowest second %.0f %% of that", 100**s.SlowestSecond/s.OpsPerSecond)
	}
	switch {
	case s.Error != "":
		b.WriteString("; ended by an error, so do not use these figures.")
	case s.Ops == 0:
		b.WriteString("; nothing was done.")
	case s.Workload.Unverified && s.Interrupted:
		b.WriteString("; interrupted, answers not checked.")
	case s.Workload.Unverified:
		b.WriteString("; answers not checked.")
	case s.Interrupted:
		b.WriteString("; interrupted, all answers right.")
	default:
		b.WriteString("; all answers right.")
	}
	return b.String()
}
