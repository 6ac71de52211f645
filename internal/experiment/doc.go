// Package experiment defines the experiments of kvbench: which combinations of
// parameters each measures, and which pictures answer its question.
//
// An [Experiment] is a list of cells. [Run] measures the cells one after the other, each
// on a new store, and gathers a [results.Result]; the experiment's Sections draw it. The
// same sections are drawn again from a stored result, so they take nothing from the run
// itself.
//
// Runs of the cells are interleaved: the first run of every cell, then the second of
// every cell. A machine that slows down for a while then does so for all cells and shows
// in their spread, in place of in one of them.
//
// An experiment that was interrupted is resumed: see [results.Resume]. Runs that are complete
// are kept, but for those of cells that share a store with one that is not.
package experiment
