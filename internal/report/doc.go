// Package report draws the results of a benchmark as one HTML page, which needs nothing
// but itself: no script, font, image or network.
//
// A [Page] has sections of text, tables and figures. [Cells] makes the sections that
// every experiment has; an experiment puts its own before them. [Trust] answers whether
// the figures can be believed.
package report
