// Package chart draws figures as SVG: one or more panels, stacked over one x axis, with
// lines, stacked areas, boxes, heat maps, bars and intervals.
//
// The output is a pure function of the figure, with coordinates of one decimal, so that
// golden files can be compared. It needs no script, font or network. Text and lines take
// their colours from CSS variables, for light and dark backgrounds; the palette is that
// of Okabe and Ito ("Color Universal Design", 2008), which people with colour-blindness
// can tell apart, and each series also has a dash and a marker of its own. Marks have
// titles, which browsers show when the pointer rests on them.
//
// A Figure carries its own note (commit, machine, workload), which is part of the
// picture: an image that leaves the report still says what was measured.
package chart
