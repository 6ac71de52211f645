// Package results is what a benchmark leaves behind: a directory that people and other
// programs read, format version 1.
//
//	result.json     everything below, and what it takes to draw the report again
//	series.csv      one row for each second and operation of each run, also if none ended in it
//	bench.txt       the format of Go benchmarks, for benchstat
//	*.hgrm          percentiles of one cell and operation in microseconds, as HdrHistogram prints them
//	*.hlog          a log of HdrHistogram of one cell: a line for each interval and operation
//	*-memtier.json  one cell in the shape of what memtier_benchmark writes
//	report.html     one page with pictures, without links to anything else
//	report.md       its words and tables, as Markdown
//	figure-*.svg    its pictures
//
// The files of a cell begin with its number, from 001 on, and are of its median run.
//
// A [Result] has cells, one for each combination of parameters that an experiment
// measures, and a cell has runs of the same. Durations are in nanoseconds, sizes in
// bytes, unless the name says otherwise. A latency of loadgen.Never, the largest of 64 bits, is that
// of an operation that was refused. Percentiles are those of the nearest rank, rounded up to the largest value of a
// bucket. A reader of another version refuses the file and names both versions. New
// fields do not change the version; readers ignore fields that they do not know.
package results
