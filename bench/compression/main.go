// Command compression compresses the parts of kvd's files (data blocks, values, and
// groups of the log), each by itself as a read would need it, and prints savings and
// costs. kvd does not compress: internal/sstable/doc.go says why.
//
// Times are processor time of one thread for one piece: medians of rounds in which the
// codecs alternate. The columns:
//
//	stored       share of all bytes, including checksums and lengths, which are not compressed;
//	             a piece that would not shrink by an eighth is stored as it is
//	encode       by a writer, whether or not the result is stored
//	disk spared  the disk time to write what is saved: if that is less than encode
//	             takes, compressing puts gains nothing unless a processor is idle
//	decode       in memory
//	read         from the page cache, verified and decoded
//	even at      percentage of reads that must be saved from the disk, since the page cache
//	             holds more, to compensate for what all reads lose
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	t := trial{out: os.Stdout, bytes: 2 << 20, rounds: 5}
	flag.StringVar(&t.dir, "dir", ".", "where the temporary directory is made")
	flag.Float64Var(&t.diskMBs, "disk", 290, "MB/s that the disk writes")
	flag.Parse()
	if err := t.run(); err != nil {
		fmt.Fprintln(os.Stderr, "compression:", err)
		os.Exit(1)
	}
}

// trial is a run of the command.
type trial struct {
	out      io.Writer
	dir      string
	bytes    int // of keys and values in each corpus
	rounds   int
	diskMBs  float64
	diskRead time.Duration // of 4 KiB
}

// run prints a table for each corpus, with a line for each codec.
func (t *trial) run() (err error) {
	if t.dir, err = os.MkdirTemp(t.dir, ".bench."); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(t.dir)) }()
	if t.diskRead, err = coldRead(t.dir, 16*t.bytes); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "a read of 4 KiB that the page cache does not have: %.0f us; the disk writes %.0f MB/s\n",
		micros(t.diskRead), t.diskMBs)
	for _, k := range kinds {
		for _, d := range k.data {
			for _, size := range k.sizes {
				if err := t.compare(k, d, size); err != nil {
					return fmt.Errorf("%s, %s: %w", k.title(size), d.name, err)
				}
			}
		}
	}
	return nil
}

// compare prints the table of one corpus.
func (t *trial) compare(k kind, d data, size int) error {
	c, err := k.cut(t, d.entries(t.bytes), size)
	if err != nil {
		return err
	}
	rows, err := measure(t.dir, c.pieces, t.rounds)
	if err != nil {
		return err
	}
	n, bytes := len(c.pieces), c.bytes()
	fmt.Fprintf(t.out, "\n%s, %s: %d of %d B; %s\n", k.title(size), d.name, n, bytes/n, c.note)
	const layout = "%-12s %7s %8s %8s %11s %8s %8s %8s %9s\n"
	fmt.Fprintf(t.out, layout, "", "", "encode", "encode", "disk spared", "decode", "decode", "read", "even at")
	fmt.Fprintf(t.out, layout, "codec", "stored", "MB/s", "us", "us", "MB/s", "us", "us", "% misses")
	whole := float64(bytes + n*k.around)
	for _, r := range rows {
		stored := float64(r.stored + n*k.around)
		each := func(total float64) string { return fmt.Sprintf("%.2f", total/float64(n)) }
		fmt.Fprintf(t.out, layout, r.codec, fmt.Sprintf("%.3f", stored/whole),
			rate(bytes, r.encode), each(micros(r.encode)), each((whole-stored)/t.diskMBs),
			rate(bytes, r.decode), each(micros(r.decode)), each(micros(r.read)),
			evenAt((r.read-rows[0].read)/time.Duration(n), t.diskRead))
	}
	return nil
}

// rate returns MB/s, which what takes no time has not.
func rate(bytes int, took time.Duration) string {
	if took == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(bytes)/micros(took))
}

// evenAt returns the share of reads that the disk must be spared if each loses so much.
func evenAt(lost, diskRead time.Duration) string {
	if lost <= 0 || diskRead <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100*float64(lost)/float64(diskRead))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
