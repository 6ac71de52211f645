package experiment

import (
	"slices"

	"github.com/kvd-db/kvd/internal/report"
)

// Source is a published design that kvd joins, with the experiments of its article.
type Source struct {
	Name    string
	Article string
	Machine string // on which the article measured
	// Steps are command lines of kvbench with the parameters of the article, without those
	// for the scale, the runs and the report. Flags come in pairs of name and value.
	Steps [][]string
	// Tables have what the article measured.
	Tables []*report.Table
	// Differs says what is measured otherwise here.
	Differs string
}

// Section returns what the article measured, for the report of its experiments.
func (s *Source) Section() report.Section {
	return report.Section{
		Title:  "What the source measured",
		Text:   []string{s.Article + ". Measured there on " + s.Machine + ".", s.Differs},
		Tables: s.Tables,
	}
}

// FindSource returns the source of a name; nil if there is none.
func FindSource(name string) *Source {
	i := slices.IndexFunc(Sources, func(s *Source) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return Sources[i]
}

// table returns a table of words.
func table(caption string, head []string, rows ...[]string) *report.Table {
	t := &report.Table{Caption: caption, Head: head}
	for _, row := range rows {
		var entries []report.Entry
		for _, text := range row {
			entries = append(entries, report.Words(text))
		}
		t.Rows = append(t.Rows, entries)
	}
	return t
}

const eightProcessors = "8 virtual processors, 61 GiB of memory and an NVMe disk (EC2 i3.2xlarge), with Java 11"

// Sources are the five published designs.
var Sources = []*Source{
	{
		Name:    "partitions",
		Article: "DBFromZero, \"Partitioned Storage Engine for Enhanced Concurrent Performance\", 2020",
		Machine: eightProcessors,
		Steps:   [][]string{{"partitions", "--keys", "100000000", "--value-size", "1024", "--partitions", "1,4,8,16", "--threads", "1,4,8,16,32"}},
		Differs: "The article gave each partition memtables of a million keys, so that 16 partitions buffered 16 times as much as one; " +
			"here all stores have the same memory. Its rate of PUT_HEAVY with 16 partitions and 32 threads is the mean of a collapse: from 570,000 operations/s to about ten.",
		Tables: []*report.Table{table("Thousand operations/s over an hour, each number of partitions at its best thread count, and the change relative to one partition.",
			[]string{"mix", "1 partition", "16 partitions", "change", "16 partitions, 32 threads"},
			[]string{"BALANCED", "64.7", "175.0", "+170 %", "172.8"},
			[]string{"DELETE_HEAVY", "82.8", "178.9", "+116 %", "178.9"},
			[]string{"GET_HEAVY", "106.4", "223.0", "+110 %", "219.1"},
			[]string{"PUT_HEAVY", "67.7", "111.1", "+64 %", "33.1"},
		)},
	},
	{
		Name:    "lsm",
		Article: "DBFromZero, \"Log-Structured Merge-Tree for Persistent Reads and Writes\", 2020",
		Machine: eightProcessors,
		Steps:   [][]string{{"lsm"}},
		Differs: "Most of its combinations were measured once. Here a get of an absent key is always one that was never put, and the share of gets that found something is reported.",
		Tables: []*report.Table{
			table("The five fastest and the five slowest combinations: thousand operations/s over an hour.",
				[]string{"mix", "find rate", "threads", "flush at keys", "key space", "thousand/s"},
				[]string{"GET_HEAVY", "90 %", "4", "1 M", "10 M", "328.4"},
				[]string{"DELETE_HEAVY", "90 %", "4", "1 M", "10 M", "318.7"},
				[]string{"PUT_HEAVY", "50 %", "4", "1 M", "10 M", "203.7"},
				[]string{"GET_HEAVY", "90 %", "1", "1 M", "10 M", "187.0"},
				[]string{"BALANCED", "90 %", "16", "1 M", "10 M", "173.6"},
				[]string{"GET_HEAVY", "10 %", "1", "100 k", "1 G", "21.1"},
				[]string{"PUT_HEAVY", "10 %", "1", "100 k", "100 M", "20.5"},
				[]string{"DELETE_HEAVY", "10 %", "1", "100 k", "1 G", "20.5"},
				[]string{"BALANCED", "10 %", "64", "100 k", "1 G", "20.1"},
				[]string{"BALANCED", "10 %", "1", "100 k", "100 M", "17.5"},
			),
			table("Medians of its 154 recorded runs: thousand operations/s.",
				[]string{"parameter", "values", "thousand/s"},
				[]string{"threads", "1 / 4 / 16 / 64", "36.8 / 101.1 / 51.2 / 60.5"},
				[]string{"flush at keys", "100 k / 1 M", "38.5 / 92.8"},
				[]string{"find rate", "10 / 50 / 90 %", "48.9 / 53.2 / 71.3"},
				[]string{"key space", "10 M / 100 M / 1 G", "94.6 / 52.3 / 43.9"},
			),
		},
	},
	{
		Name:    "microbatch",
		Article: "T. Yaacobovicz (lakeFS), \"Micro-batching\" with Go concurrency, 2020",
		Machine: "a laptop with 4 cores and 8 hardware threads, 32 GB of memory and an NVMe disk, with PostgreSQL 11.7 and Go 1.15",
		Steps:   [][]string{{"microbatch"}},
		Differs: "The article read a table of PostgreSQL with 350,000,000 rows. Its program asked for each random key ten times in a row, so a batch of 16 had two or three different keys; here all keys are drawn one by one.",
		Tables: []*report.Table{table("300 readers, 3,000,000 random reads.",
			[]string{"batch size", "seconds", "mean response", "worst response", "reads/s"},
			[]string{"none", "50", "5.2 ms", "770 ms", "60,000"},
			[]string{"1", "87", "7.9 ms", "-", "34,500"},
			[]string{"2", "43", "4 ms", "42 ms", "70,000"},
			[]string{"4", "21", "2.2 ms", "31 ms", "143,000"},
			[]string{"8", "9.5", "0.7 ms", "39 ms", "316,000"},
			[]string{"16", "5.5", "0.45 ms", "21 ms", "550,000"},
			[]string{"24", "5.0", "0.4 ms", "22 ms", "600,000"},
			[]string{"32", "4.8", "0.38 ms", "18 ms", "625,000"},
		)},
	},
	{
		Name:    "bitcask",
		Article: "A. Weisberg, \"JitCask\", 2012",
		Machine: "a desktop with a Core i5 and a SATA SSD, with Java 6 and 7",
		Steps: [][]string{
			{"reads", "--keys", "20000000", "--key-size", "64", "--value-size", "2048", "--threads", "1,64"},
			{"reads", "--keys", "20000000", "--key-size", "64", "--value-size", "2048", "--threads", "64", "--distributions", "zipfian,scrambled-zipfian", "--theta", "0.999"},
			{"restart"},
		},
		Differs: "The article kept 64 reads under way for one caller; here each of 64 threads waits for its read. Its values of 2 KiB were compressed to 1.5 KiB; kvd stores values as they are.",
		Tables: []*report.Table{table("Keys of 64 bytes, values of 2 KiB.",
			[]string{"what", "figure"},
			[]string{"inserts", "85,000/s"},
			[]string{"random reads in memory", "several 100,000/s"},
			[]string{"random reads beyond memory, one after the other", "2,200/s; without read-ahead 5,500/s"},
			[]string{"random reads beyond memory, 64 under way", "40,846/s and 42,876/s"},
			[]string{"scrambled Zipfian 0.99", "69,637/s, then 80,906/s"},
			[]string{"scrambled Zipfian 0.999", "76,200/s, later 105,000/s"},
			[]string{"memory for each key in the directory", "114 to 128 bytes expected"},
			[]string{"reload of 30 GB", "121 s at best"},
		)},
	},
	{
		Name:    "transactions",
		Article: "N. Watkins, \"Debuting CruzDB performance results\", 2017",
		Machine: "a machine that the article does not describe",
		Steps:   [][]string{{"ycsb", "--records", "500000", "--operations", "500000", "--threads", "1,2,4", "--caches", "4MiB,8GiB"}},
		Differs: "The article counted a read in a transaction of its own, or on a snapshot; here a read is a get. Its log did not sync; use --durability sync to sync here.",
		Tables: []*report.Table{table("The article has bar charts and no figures.",
			[]string{"what", "as the article says"},
			[]string{"large over small cache, read-only workload C", "nearly 6 times"},
			[]string{"more threads", "lower throughput, from locks on the cache"},
			[]string{"reads on a snapshot over reads in a transaction", "slightly faster with 1 thread, far less loss with 2, none with 4"},
			[]string{"scans, workload E", "surprisingly slow"},
		)},
	},
}
