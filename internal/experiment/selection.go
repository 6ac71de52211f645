package experiment

import (
	"slices"

	"github.com/kvd-db/kvd/internal/results"
)

// cellWith returns the measured cell with these parameters, a name and a value each; nil if
// there is none.
func cellWith(r *results.Result, params ...string) *results.Cell {
	for _, c := range r.Cells {
		fits := len(c.Runs) > 0
		for i := 0; fits && i < len(params); i += 2 {
			fits = c.Param(params[i]) == params[i+1]
		}
		if fits {
			return c
		}
	}
	return nil
}

// valuesOf returns the values of a parameter in measured cells, in the order of the cells.
func valuesOf(r *results.Result, param string) []string {
	var values []string
	for _, c := range r.Cells {
		if v := c.Param(param); len(c.Runs) > 0 && v != "" && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// numbersOf is valuesOf for a parameter that is a number, in ascending order.
func numbersOf(r *results.Result, param string) []int {
	var numbers []int
	for _, v := range valuesOf(r, param) {
		numbers = addNumber(numbers, v)
	}
	return numbers
}

// medianRate returns the median rate of a cell, 0 if it is nil.
func medianRate(c *results.Cell) float64 {
	if c == nil {
		return 0
	}
	_, median, _ := c.Rates()
	return median
}
