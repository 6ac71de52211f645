package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// printScale prints, for the stores of different sizes and then for those of different
// partitions, what operations cost, what the stores hold, and what reads cost where
// the data are larger than the cache.
func printScale(w io.Writer, o *scaleOptions, results []scaleResult) error {
	fmt.Fprintf(w, "%d + %d bytes an entry, %d threads, %v of each kind of operation; %d MiB, with little memory %d MiB\n\n",
		keyBytes, o.valueBytes, o.threads, o.slot, o.memory, o.small)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, cases := range [][]scaleCase{o.bySize(), o.byPartitions()} {
		var rows []*scaleResult
		for _, c := range cases {
			if r, ok := findScale(results, c); ok {
				rows = append(rows, r)
			}
		}
		if len(rows) == 0 {
			continue
		}
		printScaleCosts(t, rows)
		printScaleHeld(t, rows, o)
		printScaleCold(t, rows, o)
	}
	return t.Flush()
}

// cost is the rate of a kind of operation and the processor time of one.
type cost struct{ rate, cpu float64 }

func runCost(o *outcome) cost { return cost{o.Summary.OpsPerSecond, o.Summary.CPUMicrosPerOp} }

// costs are those of all kinds, in the order of the table.
func (r *scaleResult) costs() []cost {
	keys := float64(r.Case.Keys)
	return []cost{
		{keys / r.Load.Load.Seconds(), float64(r.Load.CPU.Microseconds()) / keys},
		runCost(&r.Get), runCost(&r.Absent), runCost(&r.Put),
		{keys / r.Scan.Elapsed.Seconds(), float64(r.Scan.CPU.Microseconds()) / keys},
	}
}

func printScaleCosts(w io.Writer, rows []*scaleResult) {
	fmt.Fprint(w, "keys\tpartitions\tload k/s\tus\tx\tget k/s\tus\tx\tabsent k/s\tus\tx\tput k/s\tus\tx\tscan k/s\tus\tx\t\n")
	first := rows[0].costs()
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%d\t", r.Case.Keys, r.Case.Partitions)
		for i, c := range r.costs() {
			fmt.Fprintf(w, "%.0f\t%.3f\t%s\t", c.rate/1e3, c.cpu, decimal(2, c.cpu/first[i].cpu))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "us: processor time of the process for an operation; x: that to the first row's")
	fmt.Fprintln(w)
}

func printScaleHeld(w io.Writer, rows []*scaleResult, o *scaleOptions) {
	fmt.Fprint(w, "keys\tpartitions\theap MiB\tB/key\tresident MiB\tB/key\ttables B/key\tlog MB\twritten/user, load\tput\tpeak MiB, put\topen cold ms\tafter puts ms\t\n")
	for _, r := range rows {
		keys := float64(r.Case.Keys)
		fmt.Fprintf(w, "%d\t%d\t%.1f\t%.2f\t%.1f\t%.2f\t%.1f\t%.0f\t%s\t%s\t%.0f\t%.0f\t%.0f\t\n", r.Case.Keys, r.Case.Partitions,
			mebibytes(r.Cold.Held.Heap), float64(r.Cold.Held.Heap)/keys,
			mebibytes(r.Cold.Held.Resident), float64(r.Cold.Held.Resident)/keys,
			float64(r.Load.Inside.TableBytes)/keys, float64(r.Absent.DiskBytes-r.Load.Inside.TableBytes)/1e6,
			decimal(2, float64(r.Load.Written.Calls)/keys/float64(keyBytes+o.valueBytes)),
			decimal(2, ratio(r.Put.Written.Calls, r.Put.UserBytes)),
			mebibytes(r.Put.Memory.PeakBytes),
			milliseconds(r.Cold.Open), milliseconds(r.After.Open))
	}
	fmt.Fprintln(w, "heap, resident: of a settled store that was just opened, without its block cache, garbage collected")
	fmt.Fprintln(w)
}

func printScaleCold(w io.Writer, rows []*scaleResult, o *scaleOptions) {
	fmt.Fprint(w, "keys\tpartitions\ttables / cache\tget k/s\tCPU us\tp50 us\tp99 us\tblocks/get\tread calls/get\tKiB asked/get\tKiB of the disk/get\tpeak MiB\t\n")
	for _, r := range rows {
		s, read, gets := &r.ColdGet.Summary, r.ColdGet.Read, float64(r.ColdGet.Summary.Ops)
		fmt.Fprintf(w, "%d\t%d\t%.1f\t%.1f\t%.2f\t%.0f\t%.0f\t%.3f\t%.3f\t%.2f\t%.2f\t%.0f\t\n", r.Case.Keys, r.Case.Partitions,
			ratio(r.Load.Inside.TableBytes, o.smallCache()),
			s.OpsPerSecond/1e3, s.CPUMicrosPerOp, float64(s.Get.Nanos.P50)/1e3, float64(s.Get.Nanos.P99)/1e3,
			float64(read.Blocks)/gets, float64(read.Calls)/gets, float64(read.Bytes)/gets/1024, float64(read.Disk)/gets/1024,
			mebibytes(r.ColdGet.Memory.PeakBytes))
	}
	fmt.Fprintln(w, "with little memory, from an empty page cache on; BitCask: 1 read a get, 114 to 128 B of memory a key")
	fmt.Fprintln(w)
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
