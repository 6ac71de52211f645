package experiment

// lsmRank is one combination of the article on the LSM tree, with thousand operations/s
// over an hour.
type lsmRank struct {
	mix, find, threads, threshold, keys string
	rate                                float64
	gigabytes                           float64 // 0: not published
}

var lsmBest = []lsmRank{
	{"GET_HEAVY", "90 %", "4", "1M", "10M", 328.44, 16.3},
	{"DELETE_HEAVY", "90 %", "4", "1M", "10M", 318.69, 21.9},
	{"PUT_HEAVY", "50 %", "4", "1M", "10M", 203.67, 23.8},
	{"GET_HEAVY", "90 %", "1", "1M", "10M", 187.02, 9.9},
	{"BALANCED", "90 %", "16", "1M", "10M", 173.63, 10.1},
}

var lsmWorst = []lsmRank{
	{"GET_HEAVY", "10 %", "1", "100k", "1G", 21.130, 0},
	{"PUT_HEAVY", "10 %", "1", "100k", "100M", 20.530, 0},
	{"DELETE_HEAVY", "10 %", "1", "100k", "1G", 20.510, 0},
	{"BALANCED", "10 %", "64", "100k", "1G", 20.090, 0},
	{"BALANCED", "10 %", "1", "100k", "100M", 17.515, 0},
}

// lsmMedians are the medians of the article's 154 recorded runs by parameter and value, in
// thousand operations/s, and lsmSizes those of the final size by key space, in GB.
var (
	lsmMedians = map[string]map[string]float64{
		paramMix:       {"PUT_HEAVY": 54.8, "GET_HEAVY": 71.7, "DELETE_HEAVY": 56.3, "BALANCED": 53.7},
		paramFind:      {"10 %": 48.9, "50 %": 53.2, "90 %": 71.3},
		paramThreads:   {"1": 36.8, "4": 101.1, "16": 51.2, "64": 60.5},
		paramThreshold: {"100k": 38.5, "1M": 92.8},
		paramKeySpace:  {"10M": 94.6, "100M": 52.3, "1G": 43.9},
	}
	lsmSizes = map[string]float64{"10M": 10.5, "100M": 75.7, "1G": 73.1}
)
